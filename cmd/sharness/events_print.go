package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/sharness/sharness/event"
)

// printer writes events for people. The layers that a session begins with come as one line, not as twenty.
type printer struct {
	w      io.Writer
	first  *event.Event // of layers
	layers []string     // held back
}

func (p *printer) event(e *event.Event) error {
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
