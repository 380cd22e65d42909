package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf/ringbuf"
)

// Handler takes what Run reads. Its methods are called from one goroutine.
type Handler interface {
	Life(*Life)            // a process began or ended
	Event(*Event)          // an exec, a mapping, a denial
	Malformed(error)       // a record that could not be decoded: a fault of ours
	Tick(time.Time, Stats) // about once a second
}

// Run reads until ctx is done, then takes what is left in the rings, and returns. Records of what runs come in the order
// in which it happened; a denial comes after everything that had run before it.
func (t *Tracer) Run(ctx context.Context, h Handler) error {
	stop := context.AfterFunc(ctx, t.rings.stop)
	defer stop()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := t.rings.wait(); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		if err := t.collect(h); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		select {
		case now := <-ticker.C:
			if err := t.tick(h, now); err != nil {
				return err
			}
		default:
		}
	}
	if err := t.collect(h); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return t.tick(h, time.Now())
}

func (t *Tracer) tick(h Handler, now time.Time) error {
	stats, err := t.Stats()
	if err != nil {
		return err
	}
	h.Tick(now, stats)
	return nil
}

func (t *Tracer) collect(h Handler) error {
	var rec ringbuf.Record
	runs := func() error { return drain(t.rings.exec, &rec, func(raw []byte) { t.hand(h, raw) }) }
	if err := runs(); err != nil {
		return err
	}
	var denied ringbuf.Record
	for _, ring := range t.rings.denials {
		var failed error
		err := drain(ring, &denied, func(raw []byte) {
			// Who is in the record has to be known before it is explained.
			if err := runs(); err != nil {
				failed = err
			}
			t.hand(h, raw)
		})
		if err != nil || failed != nil {
			return fmt.Errorf("%w", first(err, failed))
		}
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *Tracer) hand(h Handler, raw []byte) {
	life, ev, err := decode(raw)
	switch {
	case err != nil:
		h.Malformed(err)
	case life != nil && life.Ended && t.ended(keyOf(&life.Proc)):
		// Two threads that end at once both find themselves the last.
	case life != nil:
		life.Time = t.at(life.TimeNS)
		h.Life(life)
	default:
		ev.Time = t.at(ev.TimeNS)
		h.Event(ev)
	}
}

// ended says whether the end of this process was handed over already.
func (t *Tracer) ended(key procKey) bool {
	if slices.Contains(t.ends[:], key) {
		return true
	}
	t.ends[t.next] = key
	t.next = (t.next + 1) % len(t.ends)
	return false
}

func (t *Tracer) at(bootNS uint64) time.Time { return t.boot.Add(time.Duration(bootNS)) }
