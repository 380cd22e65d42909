// Package report is the half of sharness prove that reads: what the probe printed in a domain, and the session's log. It
// matches the two, judges, and writes the table, the page and the JSON.
//
// It runs as a process without privilege of its own: what it reads comes from inside of a domain, whoever was asked to
// run there. The privileged half (package prove) starts it, copies bytes to it and reads nothing.
package report

import (
	"time"

	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// Header says where and with what the attempts are made.
type Header struct {
	Version      string    `json:"version"`
	Kernel       string    `json:"kernel"`
	Build        string    `json:"build"` // what uname calls its version, where Debian says which package it is
	Machine      string    `json:"machine"`
	Distribution string    `json:"distribution"`
	Cgroups      string    `json:"cgroups"`
	LandlockABI  int       `json:"landlock_abi"`
	Date         time.Time `json:"date"`
	Command      string    `json:"command"`            // how it was called
	Manifest     string    `json:"manifest,omitempty"` // of the agent whose place the probe takes
	Pinned       []string  `json:"pinned,omitempty"`   // what it may execute
	Memfd        bool      `json:"memfd,omitempty"`    // that manifest lets it make memfds
	Chosen       bool      `json:"chosen,omitempty"`   // some doors alone, by name
	Doors        []Door    `json:"doors"`              // in the order of the catalogue
	Layers       []Layer   `json:"layers"`
	Removable    []string  `json:"removable,omitempty"` // with --ablate: the layers that are taken away
}

// Door is what resolve decided of a door on this host.
type Door struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	By      []string `json:"by"`
	Closed  bool     `json:"closed"`
	Allowed string   `json:"allowed,omitempty"`
	Rest    string   `json:"rest,omitempty"` // what the decision says stays open all the same
}

// Layer is one wall of this host.
type Layer struct {
	Name  string `json:"name"`
	Holds bool   `json:"holds"`
	Why   string `json:"why,omitempty"`
}

// Mode is what a run is for.
type Mode string

// The modes. A control is made by an ordinary user outside of every domain.
const (
	Control  Mode = "control"
	Session  Mode = "session"
	Sandbox  Mode = "sandbox"
	Ablation Mode = "ablation"
	Survey   Mode = "survey" // what a manifest lets its agent do
)

// Run is one start of the probe.
type Run struct {
	Name    string   `json:"name"`
	Mode    Mode     `json:"mode"`
	Control string   `json:"control,omitempty"` // the run whose attempts are the controls of this one's
	Without []string `json:"without,omitempty"` // layers that were left out
	Config  string   `json:"config,omitempty"`  // of an ablation: "without LAYER", "only LAYER" or "none"
	Traced  bool     `json:"traced"`            // every denial with an errno must be in the log
	Files   bool     `json:"files"`             // those of path calls too
}

// End says how a run ended.
type End struct {
	Status   int      `json:"status"`
	Refused  string   `json:"refused,omitempty"` // the session did not start, and why
	Failed   string   `json:"failed,omitempty"`
	Arrived  []string `json:"arrived,omitempty"` // what reached the bait
	Changed  []string `json:"changed,omitempty"` // in the workspace
	Duration float64  `json:"seconds"`
}

// Attempt is one result, judged.
type Attempt struct {
	probe.Result
	ControlVerdict probe.Verdict `json:"control_verdict,omitempty"`
	ControlNote    string        `json:"control_note,omitempty"` // why it is not positive
	Wanted         bool          `json:"event_wanted"`           // the denial has an errno that is reported
	Seen           bool          `json:"event_seen"`
	Counted        bool          `json:"event_counted,omitempty"` // as a repetition, in another line
	EventDoor      string        `json:"event_door,omitempty"`
	Layer          string        `json:"layer,omitempty"`
	Measured       bool          `json:"layer_of_event"` // the layer is that of the event; else the row's
	Events         int           `json:"events"`
	Allowed        string        `json:"allowed,omitempty"` // why it may be open
}

// RunReport is a run with what came of it.
type RunReport struct {
	Run
	End
	Attempts []Attempt       `json:"attempts,omitempty"`
	Findings []probe.Finding `json:"findings,omitempty"`
	Lost     uint64          `json:"events_lost,omitempty"`
	Untraced string          `json:"untraced,omitempty"`
	Words    string          `json:"words,omitempty"`
	Broken   []string        `json:"broken,omitempty"` // what of its output could not be read
}

// Report is everything, and --json.
type Report struct {
	Header
	Runs     []*RunReport `json:"runs"`
	Matrix   *Matrix      `json:"matrix,omitempty"`
	Left     []string     `json:"left_behind"`
	Closed   bool         `json:"closed"` // nothing is wrong
	Problems []string     `json:"problems"`
}
