"""What reports of ctest (--output-junit) or of GoogleTest (--gtest_output, test_FOLDER.xml) say: scripts/ctest_report.py REPORT...
prints what failed and was skipped on standard error, and the numbers of tests that passed, failed and were skipped."""
import os, sys, xml.etree.ElementTree as tree


def reason(words):
    # GoogleTest: "FILE:LINE: Skipped", the reason's lines, "[  SKIPPED ]"; scripts: "SKIP: reason".
    lines = [line.strip() for line in words.splitlines()]
    found = []
    for n, line in enumerate(lines):
        if line.startswith('SKIP: '):
            found.append(line[6:])
        elif line.endswith('Skipped'):
            for more in lines[n + 1:]:
                if more.startswith('['):
                    break
                if more:
                    found.append(more)
    return ' '.join(found) or 'no reason given'


def tests_of(words):
    """Of a case that is a whole suite: name, status and output of each of its tests."""
    for piece in ('\n' + words).split('\n[ RUN      ] ')[1:]:
        name = piece.split('\n', 1)[0].strip()
        status = 'skipped' if '\n[  SKIPPED ]' in piece else 'passed' if '\n[       OK ]' in piece else 'failed'
        yield name, status, piece


def results(report):
    """Each test's name, 'passed', 'failed' or 'skipped', and the reason of the last."""
    root = tree.parse(report).getroot()
    googles = root.tag == 'testsuites'  # it names the file where ctest names the folder: unit.Suite.Name
    folder = os.path.basename(report).removeprefix('test_').removesuffix('.xml')
    for case in root.iter('testcase'):
        status, skipped = case.get('status'), case.find('skipped')
        name = f'{folder}.{case.get("classname")}.{case.get("name")}' if googles else case.get('name')
        tests = [] if googles or status == 'notrun' else list(tests_of(case.findtext('system-out') or ''))
        if tests and name.count('.') == 1:
            name = name.split('.', 1)[0]
            for test, what, words in tests:
                yield f'{name}.{test}', what, reason(words) if what == 'skipped' else ''
            if status != 'run' and all(what != 'failed' for _, what, _ in tests):
                yield name + '.' + tests[-1][0], 'failed', ''  # it ended after its tests: a leak
            continue
        # ctest also says "notrun" of a program that is not there; only what skipped itself is skipped.
        by_itself = skipped is not None and (googles or skipped.get('message', '').startswith('SKIP_'))
        if by_itself:
            said = skipped.get('message', '').partition('\n')[2] if googles else reason(case.findtext('system-out') or '')
            words = said.strip()
            yield name, 'skipped', words or 'no reason given'
        elif status == 'disabled' or status == 'notrun' and googles:
            yield name, 'skipped', 'disabled'
        elif status == 'run' and case.find('failure') is None:
            yield name, 'passed', ''
        else:
            yield name, 'failed', ''


def main():
    counts = {'passed': 0, 'failed': 0, 'skipped': 0}
    for name, status, why in (found for report in sys.argv[1:] for found in results(report)):
        counts[status] += 1
        if status == 'failed':
            print('FAIL', name, file=sys.stderr)
        elif status == 'skipped':
            print('SKIP', name + ':', why, file=sys.stderr)
    if not any(counts.values()):
        print('FAIL no test ran:', *sys.argv[1:], file=sys.stderr)
        counts['failed'] = 1
    print(*counts.values())


if __name__ == '__main__':
    main()
