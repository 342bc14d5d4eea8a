"""The usual names of the libraries (@com_google_absl//absl/strings, ...), as aliases into @debian."""

load("//third_party:debian.bzl", "ABSL_TARGETS")

def _alias_repository_impl(ctx):
    packages = {}
    for label, actual in ctx.attr.aliases.items():
        package, _, target = label.partition(":")
        packages.setdefault(package, []).append((target, actual))
    packages.setdefault("", [])
    for package, aliases in packages.items():
        lines = ["package(default_visibility = [\"//visibility:public\"])"]
        for target, actual in aliases:
            lines.append("alias(name = %r, actual = %r)" % (target, "@debian//:" + actual))
        ctx.file(package + "/BUILD" if package else "BUILD", "\n".join(lines) + "\n")

_alias_repository = repository_rule(
    implementation = _alias_repository_impl,
    attrs = {"aliases": attr.string_dict(doc = "package:target -> target in @debian")},
)

_WELL_KNOWN_PROTOS = [
    "any",
    "api",
    "descriptor",
    "duration",
    "empty",
    "field_mask",
    "source_context",
    "struct",
    "timestamp",
    "type",
    "wrappers",
]

def library_repositories():
    absl = {}
    for folder, targets in ABSL_TARGETS.items():
        for target in targets:
            absl["absl/%s:%s" % (folder, target)] = "absl/%s/%s" % (folder, target)
    _alias_repository(name = "com_google_absl", aliases = absl)
    protobuf = {
        ":cc_toolchain": "cc_proto_toolchain",
        ":protobuf": "protobuf",
        ":protoc": "protoc",
    }
    for proto in _WELL_KNOWN_PROTOS:
        protobuf[":%s_proto" % proto] = proto + "_proto"
    _alias_repository(name = "com_google_protobuf", aliases = protobuf)
    _alias_repository(name = "com_github_grpc_grpc", aliases = {
        ":grpc++": "grpc++",
        ":grpc++_reflection": "grpc++_reflection",
        ":grpc_cpp_plugin": "grpc_cpp_plugin",
    })
    _alias_repository(name = "com_google_googletest", aliases = {
        ":gtest": "gtest",
        ":gtest_main": "gtest_main",
    })
    _alias_repository(name = "ceres", aliases = {":ceres": "ceres"})
    _alias_repository(name = "eigen", aliases = {":eigen": "eigen"})
    _alias_repository(name = "gloo", aliases = {":gloo": "gloo"})
    _alias_repository(name = "jpeg_turbo", aliases = {
        ":jpeg": "jpeg",
        ":turbojpeg": "turbojpeg",
    })
    _alias_repository(name = "lmdb", aliases = {":lmdb": "lmdb"})
    _alias_repository(name = "nlopt", aliases = {":nlopt": "nlopt"})
    _alias_repository(name = "onednn", aliases = {":dnnl": "dnnl"})
    _alias_repository(name = "onnx", aliases = {":onnx_cc_proto": "onnx_cc_proto"})
    _alias_repository(name = "sqlite", aliases = {":sqlite3": "sqlite3"})
    _alias_repository(name = "zlib", aliases = {":zlib": "zlib"})
