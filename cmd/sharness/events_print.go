package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/sharness/sharness/event"
)

// printer writes events for people. The layers that a session begins with come as one line, not as twenty, and so do the
// refusals of the self-probe, which are as they have to be.
type printer struct {
	w      io.Writer
	first  *event.Event // of layers
	layers []string     // held back
	probe  *event.Event // the first that is held back
	probes uint64
}

// event writes e, or holds it back; all writes refusals of the self-probe as well.
func (p *printer) event(e *event.Event, all bool) error {
	if e.Phase == "probe" && e.Type.Denial() && !all {
		if p.probe == nil {
			p.probe = e
		}
		p.probes += max(e.Count, 1)
		return nil
	}
	if e.Type == event.LayerApplied && e.Layer != "" && e.Detail == "" {
		if p.first == nil {
			p.first = e
		}
		p.layers = append(p.layers, e.Layer)
		return nil
	}
	if err := p.flush(); err != nil {
		return err
	}
	return p.line(event.Human(e))
}

// flush writes what is held back.
func (p *printer) flush() error {
	if err := p.flushLayers(); err != nil {
		return err
	}
	if p.probe == nil {
		return nil
	}
	text := fmt.Sprintf("%s %d self-probe: %d calls that had to be refused were refused (--all shows each)",
		p.probe.Time.Local().Format("15:04:05"), p.probe.Seq, p.probes)
	p.probe, p.probes = nil, 0
	return p.line(text)
}

func (p *printer) flushLayers() error {
	if p.first == nil {
		return nil
	}
	text := event.Human(p.first)
	if n := len(p.layers); n > 1 {
		all := *p.first
		all.Layer, all.Detail = "", fmt.Sprintf("%d: %s", n, strings.Join(p.layers, " "))
		text = event.Human(&all)
	}
	p.first, p.layers = nil, nil
	return p.line(text)
}

func (p *printer) line(text string) error {
	_, err := io.WriteString(p.w, text+"\n")
	return err
}
