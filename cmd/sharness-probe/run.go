package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/sharness/sharness/internal/sidedoor/attempt"
	"github.com/sharness/sharness/internal/sidedoor/probe"
)

type options struct {
	doors, skip   []string
	bait          string
	pace          time.Duration
	list, table   bool
	control, demo bool
	command       bool
	survey        bool
	sandbox       string
}

func (o options) run(born attempt.Birth, w io.Writer) (int, error) {
	var bait probe.Bait
	if o.bait != "" {
		b, err := probe.ReadBait(o.bait)
		if err != nil {
			return 2, err
		}
		bait = b
	}
	t, err := attempt.NewTarget(bait, born)
	if err != nil {
		return 2, err
	}
	if o.demo {
		return demo(t, w)
	}
	if o.survey {
		return 0, attempt.Survey(func(f probe.Finding) {
			line, err := json.Marshal(f)
			if err != nil {
				panic("sharness-probe: " + err.Error()) // strings alone
			}
			w.Write(append(line, '\n'))
		})
	}
	table := attempt.All()
	switch {
	case o.command:
		table = attempt.InCommand()
	case o.sandbox != "":
		if !o.list {
			if err := o.fromSandbox(w); err != nil {
				return 2, err
			}
		}
		table = attempt.Commands(o.sandbox)
	}
	chosen := o.choose(table)
	if len(chosen) == 0 && o.sandbox != "" {
		return 0, nil // the doors asked for are those of one command
	}
	if len(chosen) == 0 {
		return 2, fmt.Errorf("no door or attempt is called %q (see --list)", o.doors)
	}
	if o.list {
		for _, a := range chosen {
			fmt.Fprintf(w, "%-40s %-10s %s\n", a.ID, a.Control, a.What)
		}
		return 0, nil
	}
	return o.attack(t, chosen, w)
}

func (o options) choose(table []attempt.Attempt) []attempt.Attempt {
	var chosen []attempt.Attempt
	for _, a := range table {
		names := func(s string) bool { return s == a.Door || s == a.ID }
		if (len(o.doors) == 0 || slices.ContainsFunc(o.doors, names)) && !slices.ContainsFunc(o.skip, names) {
			chosen = append(chosen, a)
		}
	}
	return chosen
}

func (o options) attack(t *attempt.Target, chosen []attempt.Attempt, w io.Writer) (int, error) {
	// Line by line: an attempt that ends the probe must not take the earlier results with it.
	out := bufio.NewWriter(w)
	count := map[attempt.Verdict]int{}
	unlike := 0
	for _, a := range chosen {
		time.Sleep(o.pace)
		r := attempt.Run(a, t)
		count[r.Verdict]++
		if o.control && a.Control == attempt.Opens && r.Verdict != attempt.Open && r.Verdict != attempt.Impossible {
			unlike++
		}
		if o.table {
			fmt.Fprintf(out, "%-42s %-10s %-14s %7.1f ms  %s\n", r.ID, r.Verdict, r.Errno, r.MS, r.Detail)
		} else {
			line, err := json.Marshal(r)
			if err != nil {
				return 2, fmt.Errorf("encode %s: %w", r.ID, err)
			}
			out.Write(append(line, '\n'))
		}
		if err := out.Flush(); err != nil {
			return 2, fmt.Errorf("write result: %w", err)
		}
	}
	if o.table {
		fmt.Fprintf(w, "%d attempts: %d open, %d closed, %d absent, %d impossible, %d broke\n", len(chosen),
			count[attempt.Open], count[attempt.Closed], count[attempt.Absent], count[attempt.Impossible], count[attempt.Error])
	}
	switch {
	case o.control && unlike > 0:
		return 1, nil
	case o.control:
		return 0, nil
	case count[attempt.Open] > 0:
		return 1, nil
	case count[attempt.Error] > 0:
		return 2, nil
	}
	return 0, nil
}
