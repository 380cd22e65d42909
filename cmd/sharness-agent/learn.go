package main

import (
	"errors"
	"os"
	"time"

	"github.com/sharness/sharness/agent"
	"github.com/sharness/sharness/agent/learn/record"
)

// Learn makes the tracer record what runs, for a manifest.
type Learn struct {
	record.Config
	FD int `json:"fd"` // the writing end of a pipe
}

// record puts a recorder beside the reporter. The function that it returns is to be called at the end.
func (l *Learn) record(reporter *agent.Reporter) (agent.Handler, func(whole bool) error) {
	if l == nil {
		return reporter, func(bool) error { return nil }
	}
	out := os.NewFile(uintptr(l.FD), "recorded")
	recorder := record.New(l.Config, out)
	return both{reporter, recorder}, func(whole bool) error { return errors.Join(recorder.Finish(whole), out.Close()) }
}

// both hands everything to two handlers.
type both struct{ first, second agent.Handler }

func (b both) Life(l *agent.Life)                { b.first.Life(l); b.second.Life(l) }
func (b both) Event(e *agent.Event)              { b.first.Event(e); b.second.Event(e) }
func (b both) Malformed(err error)               { b.first.Malformed(err); b.second.Malformed(err) }
func (b both) Tick(now time.Time, s agent.Stats) { b.first.Tick(now, s); b.second.Tick(now, s) }
