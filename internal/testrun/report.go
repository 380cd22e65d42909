package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// line is one record of go test -json (go doc test2json).
type line struct {
	Action, Package, ImportPath, Test, Output string
}

// oldKernel is how package kerneltest words the one reason there may be for a skip.
var oldKernel = regexp.MustCompile(`kernel \d+\.\d+ is older than .*, which came with \d+\.\d+`)

type report struct {
	w                       io.Writer
	said                    map[string]*strings.Builder // by package and test, until it has passed
	skips                   []string
	passed, failed, skipped int
	unexplained             int // skips for another reason than an old kernel
}

func newReport(w io.Writer) *report {
	return &report{w: w, said: map[string]*strings.Builder{}}
}

// read shows the stream as it comes. A line that is no record is shown as it is.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		text, err := lines.ReadBytes('\n')
		if len(text) > 0 {
			var l line
			if json.Unmarshal(text, &l) != nil {
				fmt.Fprintf(r.w, "%s", text)
			} else {
				r.add(l)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) add(l line) {
	key := l.Package + " " + l.Test
	switch l.Action {
	case "build-output":
		fmt.Fprint(r.w, l.Output)
	case "output":
		if l.Test == "" {
			r.ownLine(l)
			return
		}
		if r.said[key] == nil {
			r.said[key] = &strings.Builder{}
		}
		r.said[key].WriteString(l.Output)
	case "pass", "skip", "fail":
		if l.Test == "" {
			r.endPackage(l)
			return
		}
		r.end(l.Action, key, l)
	}
}

// ownLine shows a package's own lines: its result, and what broke outside of any test.
func (r *report) ownLine(l line) {
	if l.Output == "PASS\n" || strings.HasSuffix(l.Output, "[no test files]\n") {
		return
	}
	fmt.Fprint(r.w, l.Output)
}

func (r *report) end(action, key string, l line) {
	said := ""
	if b := r.said[key]; b != nil {
		said = b.String()
	}
	delete(r.said, key)
	switch action {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
		fmt.Fprint(r.w, said)
	case "skip":
		r.skipped++
		why := reason(said)
		if !oldKernel.MatchString(why) {
			r.unexplained++
		}
		r.skips = append(r.skips, fmt.Sprintf("%s %s: %s", l.Package, l.Test, why))
	}
}

// endPackage shows what tests wrote that never ended: one of them ended the process, or ran out of time.
func (r *report) endPackage(l line) {
	if l.Action != "fail" {
		return
	}
	for key, b := range r.said {
		if strings.HasPrefix(key, l.Package+" ") {
			r.failed++
			fmt.Fprint(r.w, b.String())
			delete(r.said, key)
		}
	}
}

// reason is what a skipped test wrote, on one line and without the lines of the runner.
func reason(said string) string {
	var words []string
	for text := range strings.Lines(said) {
		text = strings.TrimSpace(text)
		if !strings.HasPrefix(text, "===") && !strings.HasPrefix(text, "--- SKIP") {
			words = append(words, text)
		}
	}
	return strings.Join(words, " ")
}

func (r *report) summary() {
	for _, s := range r.skips {
		fmt.Fprintln(r.w, "skipped:", s)
	}
	fmt.Fprintf(r.w, "tests: %d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
}
