"""Repository rules that unpack the Debian packages locked in third_party/debian.lock.

Two modes, chosen by ./bazelw and written to .paceline/mode:
  locked  the .deb files lie in .paceline/debs; each is checked against its sha256 and unpacked here
  system  the mirror no longer serves a locked version: the same packages, as installed on this
          machine, are linked into the same layout. Works alike, but is not reproducible.
"""

_MULTIARCH = "x86_64-linux-gnu"
_SETUP = "run ./bazelw once (with any Bazel command, for example `./bazelw info`): it fetches the locked libraries"

def _locked_packages(ctx):
    packages = []
    for line in ctx.read(ctx.attr.lock).split("\n"):
        line = line.strip()
        if line and not line.startswith("#"):
            group, name, version, sha256 = line.split(" ")
            packages.append(struct(group = group, name = name, version = version, sha256 = sha256))
    return packages

def _unpack(ctx, group):
    """Puts the files of the group's packages under root/, whichever the mode."""
    state = ctx.path(Label("//:WORKSPACE")).dirname.get_child(".paceline")
    if not state.get_child("mode").exists:
        fail("The locked libraries are not here yet: %s." % _SETUP)
    mode = ctx.read(ctx.path(Label("//:.paceline/mode"))).strip()
    packages = [p for p in _locked_packages(ctx) if p.group == group]
    if mode == "locked":
        for p in packages:
            deb = state.get_child("debs").get_child(p.name + ".deb")
            if not deb.exists:
                fail("%s is missing: %s." % (deb, _SETUP))
            ctx.download("file://" + str(deb), output = "package.deb", sha256 = p.sha256)
            _execute(ctx, ["dpkg-deb", "-x", "package.deb", "root"])
        ctx.delete("package.deb")
    else:
        # buildifier: disable=print
        print("NOT HERMETIC: using the installed versions of the locked packages " +
              "(see docs/building.md, 'When the mirror moves on').")
        for p in packages:
            _execute(ctx, ["bash", "-c", _LINK_INSTALLED, "link_installed", p.name])

# /lib is a link to /usr/lib on an installed system, so both end up under root/usr/lib there.
_LINK_INSTALLED = """
set -euo pipefail
dpkg -L "$1" | while read -r file; do
  if [[ -f $file ]]; then
    mkdir -p "root$(dirname "$file")"
    ln -sfn "$(readlink -f "$file")" "root$file"
  fi
done
"""

def _execute(ctx, command):
    result = ctx.execute(command)
    if result.return_code != 0:
        fail("%s: %s" % (" ".join(command[:3]), result.stderr))
    return result.stdout

# Prints "library static-archive shared-object" for each libX.a and libX.so that links can name.
# Shared objects go by their SONAME, the name under which the loader will look for them.
_LIST_LIBRARIES = """
set -euo pipefail
# Documentation and the examples' BUILD files would be packages of their own here.
rm -rf root/usr/share
# Old packages install into /lib and link there absolutely: one folder, relative links.
if [[ -d root/lib ]]; then
  mkdir -p root/usr/lib
  cp -a root/lib/. root/usr/lib/
  rm -r root/lib
fi
for link in $(find root/usr/lib -type l -lname '/*' -name '*.so*'); do
  target=root/usr$(readlink "$link" | sed 's,^/usr,,')
  [[ -e $target ]] && ln -sfnr "$target" "$link"
done
cd root/usr/lib/x86_64-linux-gnu
for stem in $(ls | sed -nE 's/^lib(.+)\\.(a|so)$/\\1/p' | sort -u); do
  archive=-
  shared=-
  if [[ -f lib$stem.a ]]; then archive=lib$stem.a; fi
  if [[ -f lib$stem.so ]]; then
    soname=$(objdump -p "lib$stem.so" 2>/dev/null | sed -nE 's/^ *SONAME *//p' || true)
    if [[ -n $soname && -f $soname ]]; then shared=$soname; fi
  fi
  echo "$stem $archive $shared"
done
"""

def _words(text):
    return [w for w in text.replace(",", " ").replace("\t", " ").split(" ") if w]

def _parse_pkg_config(text):
    """Returns struct(requires = [module], libs = [library]) of a .pc file."""
    requires = []
    libs = []
    for line in text.split("\n"):
        key, colon, value = line.partition(":")
        if not colon:
            continue
        if key in ["Requires", "Requires.private"]:
            skip = False
            for word in _words(value):
                if skip:
                    skip = False
                elif word in ["=", ">=", "<=", ">", "<"]:
                    skip = True
                else:
                    requires.append(word)
        elif key in ["Libs", "Libs.private"]:
            libs += [w[2:] for w in _words(value) if w.startswith("-l")]
    return struct(requires = requires, libs = libs)

def _pc_library(name, pc, libraries, modules):
    archives = []
    shared = []
    linkopts = []
    requires = [r for r in pc.requires if r in modules]
    for lib in pc.libs:
        if lib in ["atomic"]:  # Listed "as needed" by Abseil; x86-64 never needs it.
            continue
        elif lib == "z" and name != "zlib" and "zlib" in modules:
            # grpc.pc names libz itself. As a dependency it is linked behind gRPC, wherever else it
            # is used.
            requires.append("zlib")
        elif lib in libraries:
            archive, so = libraries[lib]
            archives.append("root/usr/lib/%s/%s" % (_MULTIARCH, archive if archive != "-" else so))
            shared.append("root/usr/lib/%s/%s" % (_MULTIARCH, so if so != "-" else archive))
        else:
            linkopts.append("-l" + lib)
    return """
cc_library(
    name = "pc_%s",
    srcs = select({
        ":link_shared": %r,
        "//conditions:default": %r,
    }),
    linkopts = %r,
    deps = %r,
)
""" % (name, shared, archives, linkopts, [":pc_" + r for r in requires])

# Abseil's headers by folder: a target offers its own folder's headers, so that layering_check can
# tell //absl/strings from //absl/time.
ABSL_TARGETS = {
    "algorithm": {"algorithm": "algorithm", "container": "algorithm_container"},
    "base": {
        "base": "base",
        "config": "config",
        "core_headers": "core_headers",
        "dynamic_annotations": "dynamic_annotations",
        "endian": "endian",
        "log_severity": "log_severity",
    },
    "cleanup": {"cleanup": "cleanup"},
    "container": {
        "btree": "btree",
        "fixed_array": "fixed_array",
        "flat_hash_map": "flat_hash_map",
        "flat_hash_set": "flat_hash_set",
        "inlined_vector": "inlined_vector",
        "node_hash_map": "node_hash_map",
        "node_hash_set": "node_hash_set",
    },
    "debugging": {
        "failure_signal_handler": "failure_signal_handler",
        "leak_check": "leak_check",
        "stacktrace": "stacktrace",
        "symbolize": "symbolize",
    },
    "flags": {
        "commandlineflag": "flags_commandlineflag",
        "config": "flags_config",
        "flag": "flags",
        "marshalling": "flags_marshalling",
        "parse": "flags_parse",
        "reflection": "flags_reflection",
        "usage": "flags_usage",
    },
    "functional": {
        "any_invocable": "any_invocable",
        "bind_front": "bind_front",
        "function_ref": "function_ref",
    },
    "hash": {"hash": "hash"},
    "memory": {"memory": "memory"},
    "meta": {"meta": "meta", "type_traits": "type_traits"},
    "numeric": {"bits": "bits", "int128": "int128"},
    "random": {
        "bit_gen_ref": "random_bit_gen_ref",
        "distributions": "random_distributions",
        "random": "random_random",
        "seed_sequences": "random_seed_sequences",
    },
    "status": {"status": "status", "statusor": "statusor"},
    "strings": {"cord": "cord", "str_format": "str_format", "strings": "strings"},
    "synchronization": {"synchronization": "synchronization"},
    "time": {"time": "time"},
    "types": {
        "any": "any",
        "compare": "compare",
        "optional": "optional",
        "span": "span",
        "variant": "variant",
    },
    "utility": {"utility": "utility"},
}

def _debian_packages_impl(ctx):
    _unpack(ctx, "library")
    libraries = {}
    for line in _execute(ctx, ["bash", "-c", _LIST_LIBRARIES]).strip().split("\n"):
        stem, archive, shared = line.split(" ")
        libraries[stem] = (archive, shared)

    modules = {}
    for file in ctx.path("root/usr/lib/%s/pkgconfig" % _MULTIARCH).readdir():
        if file.basename.endswith(".pc"):
            modules[file.basename[:-3]] = _parse_pkg_config(ctx.read(file))
    build = [ctx.read(ctx.attr.build_file)]
    for name, pc in sorted(modules.items()):
        build.append(_pc_library(name, pc, libraries, modules))

    # Every header of a module's folder, plus the modules it requires, by folder again.
    absl_folders = {}
    for folder, targets in ABSL_TARGETS.items():
        build.append("filegroup(name = \"absl_%s_headers\", srcs = glob([\"root/usr/include/absl/%s/**/*.h\"]))" %
                     (folder, folder))
        for target, module in targets.items():
            absl_folders[module] = folder
            build.append("""
cc_library(
    name = "absl/%s/%s",
    hdrs = [":absl_%s_headers"],
    includes = ["root/usr/include"],
    deps = [":absl_headers", ":pc_absl_%s"],
)
""" % (folder, target, folder, module))
    ctx.file("BUILD", "\n".join(build))

debian_packages = repository_rule(
    doc = "The locked libraries: one cc_library per pkg-config module, and those of build_file.",
    implementation = _debian_packages_impl,
    attrs = {
        "build_file": attr.label(mandatory = True),
        "lock": attr.label(mandatory = True),
    },
)

def _photographs_impl(ctx):
    _unpack(ctx, "photographs")
    _execute(ctx, ["bash", "-c", """
set -euo pipefail
mkdir photographs
cp -L root/usr/share/backgrounds/*.jpg photographs/
cp -L root/usr/share/doc/*/copyright photographs/copyright
rm -r root
"""])
    ctx.file("BUILD", """
package(default_visibility = ["//visibility:public"])

filegroup(
    name = "jpegs",
    srcs = glob(["photographs/*.jpg"]),
)

# Authors and licences of the photographs (all allow this use; none is copied into the repository).
filegroup(
    name = "copyright",
    srcs = ["photographs/copyright"],
)
""")

photographs = repository_rule(
    doc = "Real photographs, for the data set that the built-in plan trains on.",
    implementation = _photographs_impl,
    attrs = {"lock": attr.label(mandatory = True)},
)
