"""Local stand-ins for the repositories Bazel 4 would download for its own WORKSPACE suffix."""

def _stub_repository_impl(ctx):
    for path, content in ctx.attr.files.items():
        ctx.file(path, content)
    for path, content in ctx.attr.executables.items():
        ctx.file(path, content, executable = True)

_stub_repository = repository_rule(
    implementation = _stub_repository_impl,
    attrs = {
        "executables": attr.string_dict(),
        "files": attr.string_dict(),
    },
)

_RULES_CC_DEFS = """
cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
"""

_RULES_JAVA_DEFS = """
java_binary = native.java_binary
java_import = native.java_import
java_library = native.java_library
java_package_configuration = native.java_package_configuration
java_plugin = native.java_plugin
java_runtime = native.java_runtime
java_test = native.java_test
java_toolchain = native.java_toolchain
"""

_RULES_PROTO_DEFS = """
proto_lang_toolchain = native.proto_lang_toolchain
proto_library = native.proto_library
"""

def stub_repositories():
    """Declares the stubs, on Debian's Bazel 4 only (its build leaves native.bazel_version empty)."""
    if native.bazel_version and not native.bazel_version.startswith("4."):
        return
    _stub_repository(
        name = "rules_cc",
        files = {"BUILD": "", "cc/BUILD": "", "cc/defs.bzl": _RULES_CC_DEFS},
    )
    _stub_repository(
        name = "rules_java",
        files = {"BUILD": "", "java/BUILD": "", "java/defs.bzl": _RULES_JAVA_DEFS},
    )
    _stub_repository(
        name = "rules_proto",
        files = {"BUILD": "", "proto/BUILD": "", "proto/defs.bzl": _RULES_PROTO_DEFS},
    )

    # `bazel coverage` is not supported offline; the label must still resolve for `bazel test`.
    _stub_repository(
        name = "remote_coverage_tools",
        executables = {"unsupported.sh": "#!/bin/sh\\necho 'coverage is not set up' >&2\\nexit 1\\n"},
        files = {"BUILD": """
sh_binary(
    name = "coverage_report_generator",
    srcs = ["unsupported.sh"],
    visibility = ["//visibility:public"],
)
sh_binary(
    name = "lcov_merger",
    srcs = ["unsupported.sh"],
    visibility = ["//visibility:public"],
)
"""},
    )
