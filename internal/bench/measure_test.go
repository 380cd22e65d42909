package main

import (
	"testing"
	"time"
)

func TestRatioComparesWithinARound(t *testing.T) {
	// Rounds under a load that differs tenfold: the ratio is the same in each.
	bare := []time.Duration{10, 100, 10, 100, 10}
	row := []time.Duration{20, 200, 20, 200, 20}
	if got := ratio(row, bare); got != 2 {
		t.Errorf("got %v, want 2", got)
	}
}

func TestQuantileKeepsTheSamples(t *testing.T) {
	s := []time.Duration{3, 1, 2}
	if got := quantile(s, 0.5); got != 2 {
		t.Errorf("median: got %v, want 2", got)
	}
	if got := quantile(s, 0.95); got != 3 {
		t.Errorf("p95: got %v, want 3", got)
	}
	if s[0] != 3 {
		t.Error("the samples were sorted in place: rounds no longer match")
	}
}

func TestEveryRowFailsLoudly(t *testing.T) {
	if _, err := (row{name: "none", argv: []string{"/bin/false"}}).once(t.TempDir()); err == nil {
		t.Error("a program that failed was timed")
	}
}
