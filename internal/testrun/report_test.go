package main

import (
	"strings"
	"testing"
)

// play feeds what go test -json would have written.
func play(t *testing.T, records ...string) (*report, string) {
	t.Helper()
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(strings.Join(records, "\n") + "\n")); err != nil {
		t.Fatal(err)
	}
	r.summary()
	return r, out.String()
}

func TestReportShowsFailuresAndHidesWhatPassed(t *testing.T) {
	_, out := play(t,
		`{"Action":"output","Package":"p","Test":"TestGood","Output":"chatter\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestGood"}`,
		`{"Action":"output","Package":"p","Test":"TestBad","Output":"    x_test.go:1: got 1, want 2\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestBad"}`,
		`{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}`,
		`{"Action":"fail","Package":"p"}`)
	if strings.Contains(out, "chatter") || !strings.Contains(out, "got 1, want 2") || !strings.Contains(out, "FAIL\tp\t0.1s\n") ||
		!strings.HasSuffix(out, "tests: 1 passed, 1 failed, 0 skipped\n") {
		t.Errorf("got\n%s", out)
	}
}

func TestReportShowsATestThatNeverEnded(t *testing.T) {
	r, out := play(t,
		`{"Action":"output","Package":"p","Test":"TestHung","Output":"panic: test timed out\n"}`,
		`{"Action":"fail","Package":"p"}`)
	if r.failed != 1 || !strings.Contains(out, "timed out") {
		t.Errorf("got %d failed\n%s", r.failed, out)
	}
}

func TestReportShowsWhatDoesNotBuild(t *testing.T) {
	_, out := play(t,
		`{"ImportPath":"p","Action":"build-output","Output":"x.go:1: undefined: y\n"}`,
		`not JSON at all`)
	if !strings.Contains(out, "undefined: y") || !strings.Contains(out, "not JSON at all\n") {
		t.Errorf("got\n%s", out)
	}
}

func TestReportTellsAnOldKernelFromAnyOtherReason(t *testing.T) {
	r, out := play(t,
		`{"Action":"output","Package":"p","Test":"TestNew","Output":"=== RUN   TestNew\n"}`,
		`{"Action":"output","Package":"p","Test":"TestNew","Output":"    require.go:110: kernel 6.1 is older than sysctl vm/memfd_noexec, which came with 6.3\n"}`,
		`{"Action":"output","Package":"p","Test":"TestNew","Output":"--- SKIP: TestNew (0.00s)\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestNew"}`,
		`{"Action":"output","Package":"p","Test":"TestLazy","Output":"    x_test.go:9: no time\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestLazy"}`)
	if r.skipped != 2 || r.unexplained != 1 {
		t.Errorf("got %d skipped, %d unexplained, want 2 and 1", r.skipped, r.unexplained)
	}
	if !strings.Contains(out, "skipped: p TestLazy: x_test.go:9: no time\n") || strings.Contains(out, "=== RUN") {
		t.Errorf("got\n%s", out)
	}
}
