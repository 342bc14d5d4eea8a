"""Prints "N passed, N failed, N skipped": the test cases of one CI run.

Reads the test.xml files that the run's own testResult build events name, since bazel-testlogs keeps
stale ones. A case counts once, by its worst outcome, however many configurations ran it. When a step
failed although no case did (a build error, a formatting error), that counts as one failure.

usage: totals.py FOLDER_OF_BUILD_EVENTS NUMBER_OF_FAILED_STEPS
"""

import json
import pathlib
import sys
import urllib.parse
import xml.etree.ElementTree

PASSED, SKIPPED, FAILED = range(3)


def test_reports(events_file):
    """Yields (target, path of test.xml), one a shard and attempt; the last attempt counts."""
    last_attempt = {}
    for line in events_file.read_text().splitlines():
        event = json.loads(line)
        if "testResult" not in event.get("id", {}) or "testResult" not in event:
            continue
        key = event["id"]["testResult"]
        for output in event["testResult"].get("testActionOutput", []):
            if output["name"] == "test.xml":
                path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
                last_attempt[key["label"], key.get("shard"), key.get("run")] = path
    for (target, _, _), path in last_attempt.items():
        yield target, path


def outcomes(path):
    """Yields (name, outcome) of each case."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = "%s.%s" % (case.get("classname"), case.get("name"))
        if case.find("failure") is not None or case.find("error") is not None:
            yield name, FAILED
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            yield name, SKIPPED
        else:
            yield name, PASSED


def main(folder, failed_steps):
    worst = {}
    for events_file in sorted(pathlib.Path(folder).glob("*.json")):
        for target, path in test_reports(events_file):
            try:
                cases = list(outcomes(path))
            except (OSError, xml.etree.ElementTree.ParseError) as error:
                cases = [("unreadable report: %s" % error, FAILED)]
            for name, outcome in cases:
                worst[target, name] = max(worst.get((target, name), PASSED), outcome)
    counts = [list(worst.values()).count(outcome) for outcome in (PASSED, SKIPPED, FAILED)]
    for (target, name), outcome in sorted(worst.items()):
        if outcome == FAILED:
            print("failed: %s %s" % (target, name))
    if failed_steps > 0 and counts[FAILED] == 0:
        counts[FAILED] = failed_steps
    print("%d passed, %d failed, %d skipped" % (counts[PASSED], counts[FAILED], counts[SKIPPED]))
    return 1 if counts[FAILED] or not counts[PASSED] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
