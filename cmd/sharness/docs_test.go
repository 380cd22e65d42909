package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestManPagesCoverEveryCommandAndItsFlags(t *testing.T) {
	dir := t.TempDir()
	root := newRootCmd()
	if err := writeMan(root, dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		page, err := os.ReadFile(filepath.Join(dir, "sharness-"+c.Name()+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.HasPrefix(string(page), ".TH SHARNESS-") || !strings.Contains(string(page), ".SH SYNOPSIS\n.B sharness "+roff(c.Name())) {
			t.Errorf("%s: got\n%s", c.Name(), page)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "sharness-enforce.1"))
	if err != nil {
		t.Fatal(err)
	}
	if want := `.B \-\-allow\-open DOOR`; !strings.Contains(string(page), want) {
		t.Errorf("want %q in\n%s", want, page)
	}
}

func TestRoffEscapesWhatWouldBeAMacro(t *testing.T) {
	for in, want := range map[string]string{".so /etc/shadow": `\&.so /etc/shadow`, "'x": `\&'x`, `a\fB-b`: `a\efB\-b`} {
		if got := roff(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
