"""portable_binary: a program with everything it needs, to copy to another machine.

    portable_binary(
        name = "worker_portable",
        binary = ":worker",
    )

gives worker_portable.tar.gz, which unpacks to
    worker_portable/worker       the program
    worker_portable/lib/         shared objects, found through the program's RPATH ($ORIGIN/lib)
    worker_portable/runfiles/    data, found by //proto/support:runfiles
The other machine needs glibc and libstdc++ at least as new as Debian 12's, and nothing else.
"""

def _portable_binary_impl(ctx):
    binary = ctx.executable.binary
    entries = {ctx.label.name + "/" + binary.basename: binary}
    files = ctx.attr.binary[DefaultInfo].default_runfiles.files.to_list()
    for file in files:
        if file == binary:
            continue
        path = file.short_path
        if "/_solib_" in "/" + path:
            entries["%s/lib/%s" % (ctx.label.name, file.basename)] = file
        elif path.startswith("../"):
            entries["%s/runfiles/%s" % (ctx.label.name, path[3:])] = file
        else:
            entries["%s/runfiles/%s/%s" % (ctx.label.name, ctx.workspace_name, path)] = file

    output = ctx.actions.declare_file(ctx.label.name + ".tar.gz")
    list_file = ctx.actions.declare_file(ctx.label.name + ".list")
    ctx.actions.write(list_file, "".join(["%s\t%s\n" % (f.path, to) for to, f in sorted(entries.items())]))
    ctx.actions.run_shell(
        # Fixed order, owner and time, so that the same content gives the same archive.
        command = """
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
while IFS=$'\\t' read -r from to; do
  mkdir -p "$folder/${to%/*}"
  cp -L "$from" "$folder/$to"
done < "$1"
tar -C "$folder" --sort=name --owner=0 --group=0 --mtime=@0 -c "$3" | gzip -n -1 > "$2"
""",
        arguments = [list_file.path, output.path, ctx.label.name],
        inputs = entries.values() + [list_file],
        outputs = [output],
        mnemonic = "PortableBinary",
    )
    return [DefaultInfo(files = depset([output]), runfiles = ctx.runfiles(files = [output]))]

portable_binary = rule(
    implementation = _portable_binary_impl,
    attrs = {"binary": attr.label(executable = True, cfg = "target", mandatory = True)},
)
