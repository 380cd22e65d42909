package prove

import (
	"fmt"
	"slices"

	"github.com/sharness/sharness/internal/prove/report"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/launcher"
	"github.com/sharness/sharness/manifest"
)

// withUID are the doors at which an own uid is never taken away, as the pid namespace never is: signals, reboot and other
// calls of the machine, mounts, sysctls. What an attempt would do there must not depend on a layer under test.
var withUID = []string{"sig", "pid1", "kernel", "ns", "file-proc"}

// loaderDoors and readDoors are where another build, and a workspace that is only to be read, make a difference.
var (
	loaderDoors = []string{"exec-ldso", "exec-inject"}
	readDoors   = []string{"file-meta", "file-git", "file-config"}
)

// ablations take each layer away alone, leave each on alone, and take all away.
func (p *proof) ablations() []task {
	all := launcher.Removable()
	var tasks []task
	add := func(config string, without []sidedoor.Layer) { tasks = append(tasks, p.ablation(config, without)...) }
	add("none", all)
	for _, l := range all {
		add("without "+string(l), []sidedoor.Layer{l})
	}
	for _, l := range all {
		add("only "+string(l), slices.DeleteFunc(slices.Clone(all), func(x sidedoor.Layer) bool { return x == l }))
	}
	return tasks
}

// ablation is one configuration, in all the sessions that it takes.
func (p *proof) ablation(config string, without []sidedoor.Layer) []task {
	wanted := p.o.Doors
	one := func(name, program string, access manifest.Access, without []sidedoor.Layer, control string, doors, skip []string) []task {
		if len(wanted) > 0 {
			doors = slices.DeleteFunc(slices.Clone(orAll(doors, wanted)), func(d string) bool { return !slices.Contains(wanted, d) || slices.Contains(skip, d) })
			if len(doors) == 0 {
				return nil
			}
			skip = nil
		}
		t := task{Run: report.Run{Name: fmt.Sprintf("%s (%s)", config, name), Mode: report.Ablation, Config: config, Control: control}, program: program, access: access, without: without}
		for _, l := range without {
			t.Without = append(t.Without, string(l))
		}
		for _, d := range doors {
			t.args = append(t.args, "--door", d)
		}
		for _, d := range skip {
			t.args = append(t.args, "--skip", d)
		}
		return []task{t}
	}
	if !slices.Contains(without, sidedoor.UID) {
		tasks := one("static", p.s.static, manifest.AccessWrite, without, "control, static", nil, nil)
		return append(tasks, p.variants(one, without)...)
	}
	tasks := one("static", p.s.static, manifest.AccessWrite, without, "control, static", nil, withUID)
	if kept := slices.DeleteFunc(slices.Clone(without), func(l sidedoor.Layer) bool { return l == sidedoor.UID }); len(kept) > 0 {
		tasks = append(tasks, one("static, own uid", p.s.static, manifest.AccessWrite, kept, "control, static", withUID, nil)...)
	}
	return append(tasks, p.variants(one, without)...)
}

func (p *proof) variants(one func(name, program string, access manifest.Access, without []sidedoor.Layer, control string, doors, skip []string) []task, without []sidedoor.Layer) []task {
	tasks := one("workspace read-only", p.s.static, manifest.AccessRead, without, "control, static", readDoors, nil)
	if p.s.dynamic == "" {
		return tasks
	}
	return append(tasks, one("dynamic", p.s.dynamic, manifest.AccessWrite, without, "control, dynamic", loaderDoors, nil)...)
}

func orAll(doors, wanted []string) []string {
	if doors == nil {
		return wanted
	}
	return doors
}
