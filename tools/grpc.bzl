"""cc_grpc_library: the gRPC services of a proto_library, for C++."""

def _generate_impl(ctx):
    info = ctx.attr.proto[ProtoInfo]
    outputs = []
    for source in info.direct_sources:
        stem = source.basename[:-len(".proto")]
        outputs += [
            ctx.actions.declare_file(stem + ".grpc.pb.h"),
            ctx.actions.declare_file(stem + ".grpc.pb.cc"),
        ]
    args = ctx.actions.args()
    args.add(ctx.executable._plugin, format = "--plugin=protoc-gen-grpc=%s")
    args.add(ctx.bin_dir.path, format = "--grpc_out=%s")
    args.add_all(info.transitive_proto_path, format_each = "-I%s")

    # Well-known protos sit in another repository, under a path that protoc does not guess.
    args.add_all(info.transitive_sources, map_each = _import_argument)
    args.add_all(info.direct_sources)
    ctx.actions.run(
        executable = ctx.executable._protoc,
        arguments = [args],
        inputs = info.transitive_sources,
        tools = [ctx.executable._plugin],
        outputs = outputs,
        mnemonic = "GrpcGenerate",
        progress_message = "Generating gRPC code of %{label}",
    )
    return [DefaultInfo(files = depset(outputs))]

def _import_argument(file):
    marker = "/_virtual_imports/"
    if marker in file.path:
        return "-I" + file.path[:file.path.index("/", file.path.index(marker) + len(marker))]
    return None

_generate = rule(
    implementation = _generate_impl,
    attrs = {
        "proto": attr.label(providers = [ProtoInfo], mandatory = True),
        "_plugin": attr.label(
            default = "@com_github_grpc_grpc//:grpc_cpp_plugin",
            cfg = "exec",
            executable = True,
        ),
        "_protoc": attr.label(
            default = "@com_google_protobuf//:protoc",
            cfg = "exec",
            executable = True,
        ),
    },
)

def cc_grpc_library(name, proto, deps, visibility = None):
    """Generates the C++ service stubs of one proto file.

    Args:
      name: the cc_library made.
      proto: the proto_library that declares the services, in this package.
      deps: its cc_proto_library.
      visibility: as usual.
    """
    _generate(
        name = name + "_generated",
        proto = proto,
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = [":" + name + "_generated"],
        hdrs = [":" + name + "_generated"],
        visibility = visibility,
        deps = deps + ["@com_github_grpc_grpc//:grpc++"],
    )
