package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// Bounds of what is kept of a run, whoever ran there.
const (
	maxLine     = 64 << 10
	maxWords    = 16 << 10
	maxAttempts = 4096
	maxEvents   = 200000
	maxBroken   = 20
	maxFindings = 20000
)

// reader builds the report from the stream.
type reader struct {
	report Report
	table  *table
	now    *RunReport
	live   *matching
	lines  map[Kind][]byte // what of a last line has come
}

// read takes the whole stream, and shows each door as soon as what its attempts caused must have come.
func (r *reader) read(in io.Reader) error {
	type frame struct {
		kind Kind
		data []byte
		err  error
	}
	frames := make(chan frame)
	go func() {
		defer close(frames)
		for {
			k, data, err := readFrame(in)
			if err == io.EOF {
				return
			}
			frames <- frame{k, data, err}
			if err != nil {
				return
			}
		}
	}()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case f, more := <-frames:
			if !more {
				return nil
			}
			if f.err != nil {
				return f.err
			}
			if err := r.frame(f.kind, f.data); err != nil {
				return err
			}
		case <-ticker.C:
			if r.now != nil {
				r.table.settled(r.live, false)
			}
		}
	}
}

func (r *reader) frame(k Kind, data []byte) error {
	switch k {
	case KindHeader:
		if err := json.Unmarshal(data, &r.report.Header); err != nil {
			return err
		}
		r.table.header(&r.report.Header)
	case KindBegin:
		run := &RunReport{}
		if err := json.Unmarshal(data, &run.Run); err != nil {
			return err
		}
		r.now, r.lines = run, map[Kind][]byte{}
		r.report.Runs = append(r.report.Runs, run)
		r.live = newMatching(run, r.report.run(run.Control))
		r.live.header = &r.report.Header
		r.table.begin(run)
	case KindEnd:
		if r.now == nil {
			return errors.New("report: a run ended that never began")
		}
		if err := json.Unmarshal(data, &r.now.End); err != nil {
			return err
		}
		r.live.finish()
		r.table.settled(r.live, true)
		r.table.end(r.now)
		r.now = nil
	case KindLeft:
		return json.Unmarshal(data, &r.report.Left)
	case KindWords:
		if r.now != nil && len(r.now.Words) < maxWords {
			r.now.Words += event.Escape(string(data[:min(len(data), maxWords-len(r.now.Words))]))
		}
	case KindResults, KindEvents:
		if r.now != nil {
			r.bytes(k, data)
		}
	default:
		return fmt.Errorf("report: frame of unknown kind %q", k)
	}
	return nil
}

// bytes takes what a domain wrote apart into lines.
func (r *reader) bytes(k Kind, data []byte) {
	buf := append(r.lines[k], data...)
	for {
		i := bytes.IndexByte(buf, '\n')
		if i < 0 {
			break
		}
		r.line(k, buf[:i])
		buf = buf[i+1:]
	}
	if len(buf) > maxLine {
		r.broke("a line of more than %d bytes", maxLine)
		buf = nil
	}
	r.lines[k] = bytes.Clone(buf)
}

func (r *reader) broke(format string, args ...any) {
	if len(r.now.Broken) < maxBroken {
		r.now.Broken = append(r.now.Broken, fmt.Sprintf(format, args...))
	}
}

func (r *reader) line(k Kind, line []byte) {
	if k == KindEvents {
		e, err := event.Parse(line)
		switch {
		case err != nil:
			r.broke("event: %v", err)
		case len(r.live.events) < maxEvents:
			r.live.event(e)
		}
		return
	}
	if r.now.Mode == Survey {
		r.finding(line)
		return
	}
	var res probe.Result
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&res); err != nil {
		r.broke("result %.200q: %v", line, err)
		return
	}
	if len(r.now.Attempts) >= maxAttempts {
		r.broke("more than %d results", maxAttempts)
		return
	}
	r.live.result(&res)
}

func (r *reader) finding(line []byte) {
	var f probe.Finding
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		r.broke("finding %.200q: %v", line, err)
		return
	}
	if len(r.now.Findings) >= maxFindings {
		return // a manifest that allows as much needs no longer list
	}
	r.now.Findings = append(r.now.Findings, probe.Finding{Kind: f.Kind, Name: event.Escape(f.Name), Detail: event.Escape(f.Detail)})
}

// run finds a run by its name.
func (r *Report) run(name string) *RunReport {
	for _, run := range r.Runs {
		if run.Name == name && name != "" {
			return run
		}
	}
	return nil
}
