"""What a report of ctest (--output-junit) says: scripts/ctest_report.py REPORT prints what failed and was skipped on standard error,
and the numbers of tests that passed, failed and were skipped."""
import sys, xml.etree.ElementTree as tree


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


def results(report):
    """Each test's name, 'passed', 'failed' or 'skipped', and the reason of the last."""
    for case in tree.parse(report).getroot().iter('testcase'):
        status, skipped = case.get('status'), case.find('skipped')
        # ctest also says "notrun" of a program that is not there; only what skipped itself is skipped.
        by_itself = skipped is not None and skipped.get('message', '').startswith('SKIP_')
        if status == 'run':
            yield case.get('name'), 'passed', ''
        elif status == 'disabled':
            yield case.get('name'), 'skipped', 'disabled'
        elif by_itself:
            yield case.get('name'), 'skipped', reason(case.findtext('system-out') or '')
        else:
            yield case.get('name'), 'failed', ''


def main():
    counts = {'passed': 0, 'failed': 0, 'skipped': 0}
    for name, status, why in results(sys.argv[1]):
        counts[status] += 1
        if status == 'failed':
            print('FAIL', name, file=sys.stderr)
        elif status == 'skipped':
            print('SKIP', name + ':', why, file=sys.stderr)
    if not any(counts.values()):
        print('FAIL no test ran:', sys.argv[1], file=sys.stderr)
        counts['failed'] = 1
    print(*counts.values())


if __name__ == '__main__':
    main()
