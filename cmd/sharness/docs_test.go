package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/manifest"
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

// TestManualNamesEveryKeyOfTheManifest holds the table of docs/manual.md against the schema, in both directions.
func TestManualNamesEveryKeyOfTheManifest(t *testing.T) {
	text, err := os.ReadFile("../../docs/manual.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "\n| key | meaning | default |\n")
	if !ok {
		t.Fatal("no table of keys in the manual")
	}
	named := map[string]bool{}
	for row := range strings.Lines(table) {
		if !strings.HasPrefix(row, "|") {
			break
		}
		// `sandbox.pids`, `memory`: what follows the first name in a cell is short for its siblings.
		parent := ""
		for i, word := range strings.Split(strings.Split(row, "|")[1], "`") {
			if i%2 == 0 {
				continue
			}
			if dot := strings.LastIndex(word, "."); dot >= 0 {
				parent = word[:dot+1]
			} else {
				word = parent + word
			}
			named[word] = true
		}
	}
	keys := map[string]bool{"version": true}
	named["version"] = true // in the text above the table
	var walk func(path string, raw json.RawMessage)
	walk = func(path string, raw json.RawMessage) {
		var schema struct{ Properties map[string]json.RawMessage }
		if err := json.Unmarshal(raw, &schema); err != nil {
			t.Fatal(err)
		}
		whole := named[path] // described with all that is in it
		for key, below := range schema.Properties {
			sub := strings.TrimPrefix(path+"."+key, ".")
			keys[sub] = true
			named[sub] = named[sub] || whole
			walk(sub, below)
			named[path] = named[path] || named[sub]
		}
	}
	walk("", manifest.Schema())
	delete(named, "")
	for key := range keys {
		if !named[key] {
			t.Errorf("%s: a key that the manual does not name", key)
		}
	}
	for key := range named {
		if !keys[key] && named[key] {
			t.Errorf("%s: in the manual, and no key", key)
		}
	}
}
