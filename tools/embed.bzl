"""embed_files: files as string constants, so that a binary copied to a node needs none of them."""

def _generate_impl(ctx):
    header = ctx.actions.declare_file(ctx.attr.library + ".h")
    source = ctx.actions.declare_file(ctx.attr.library + ".cc")
    args = ctx.actions.args()
    args.add(header)
    args.add(source)
    args.add(header.short_path)
    args.add(ctx.attr.function)
    args.add_all(ctx.files.srcs)
    ctx.actions.run(
        executable = ctx.executable._embedder,
        arguments = [args],
        inputs = ctx.files.srcs,
        outputs = [header, source],
        mnemonic = "EmbedFiles",
        progress_message = "Embedding the files of %{label}",
    )
    return [DefaultInfo(files = depset([header, source]))]

_generate = rule(
    implementation = _generate_impl,
    attrs = {
        "function": attr.string(mandatory = True),
        "library": attr.string(mandatory = True),
        "srcs": attr.label_list(allow_files = True, mandatory = True),
        "_embedder": attr.label(
            default = "//tools:embed_files",
            cfg = "exec",
            executable = True,
        ),
    },
)

def embed_files(name, srcs, visibility = None, testonly = False):
    """Makes a cc_library whose NAME.h declares the files' contents.

    embed_files(name = "embedded_networks", srcs = glob(["*.textproto"])) gives the header
    "models/networks/embedded_networks.h" with `absl::Span<const EmbeddedFile> EmbeddedNetworks();`
    in namespace paceline, sorted by file name.

    Args:
      name: the cc_library made, in snake_case; the function is the same in CamelCase.
      srcs: the files; their base names must differ.
      visibility: as usual.
      testonly: as usual.
    """
    _generate(
        name = name + "_generated",
        srcs = srcs,
        function = "".join([word.capitalize() for word in name.split("_")]),
        library = name,
        testonly = testonly,
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = [":" + name + "_generated"],
        hdrs = [":" + name + "_generated"],
        testonly = testonly,
        visibility = visibility,
        deps = [
            "//tools:embedded_file",
            "@com_google_absl//absl/types:span",
        ],
    )
