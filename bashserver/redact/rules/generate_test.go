package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

func TestTableIsWhatTheRulesSay(t *testing.T) {
	in, err := os.ReadFile("gitleaks.toml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := generate(in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../rules_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("rules_gen.go is not what gitleaks.toml gives; run: go generate ./bashserver/redact")
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(in); !strings.Contains(string(readme), hex.EncodeToString(sum[:])) {
		t.Errorf("README.md does not name the sum of gitleaks.toml, %x", sum)
	}
}

func TestRuleWithoutAPlaceToBeginIsRefused(t *testing.T) {
	for name, rule := range map[string]string{
		"anything":      `regex = '''[a-z]{40}'''`,
		"short keyword": "regex = '''[a-z]{40}'''\nkeywords = [\"ab\"]",
		"no pattern":    `regex = '''(a'''`,
		"too short":     `regex = '''ab?'''`,
	} {
		if _, err := generate([]byte("[[rules]]\nid = \"x\"\n" + rule)); err == nil || !strings.Contains(err.Error(), "rule x: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
