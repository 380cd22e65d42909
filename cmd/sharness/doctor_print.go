package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/launcher/host"
	"github.com/sharness/sharness/launcher/resolve"
)

// printDiagnosis writes what people read. Paths and the kernel's own words are escaped as everywhere.
func printDiagnosis(w io.Writer, d *diagnosis) error {
	var b bytes.Buffer
	printHost(&b, d)
	if d.Decision == nil {
		fmt.Fprintf(&b, "\nNot run as root: what needs privilege is unknown, and which doors are closed cannot be decided.\n"+
			"Run: sudo sharness doctor\n")
	} else {
		printLayers(&b, d.Decision)
		printDoors(&b, d.Decision)
		printVerdict(&b, d)
	}
	for line := range strings.Lines(b.String()) { // tabwriter pads the last column too
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func printHost(b *bytes.Buffer, d *diagnosis) {
	f := d.Features
	fmt.Fprintf(b, "THIS HOST  Linux %s %s, uid %d\n", event.Escape(f.Kernel), event.Escape(f.Machine), f.UID)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	row := func(name, state, note string) { fmt.Fprintf(t, "  %s\t%s\t%s\n", name, state, event.Escape(note)) }
	trial := func(name string, tr host.Trial, note string) {
		row(name, string(tr.State), strings.Trim(tr.Cause+"; "+note, "; "))
	}
	row("landlock", abi(f.Landlock), f.Landlock.Cause)
	if f.Landlock.KeyctlErratum {
		row("landlock keyctl erratum", "yes", "by its version this kernel may have CVE-2024-42318; the seccomp filter denies the call")
	}
	trial("seccomp filter", f.Seccomp.Filter, strings.Join(f.Seccomp.Actions, " "))
	for _, name := range sortedKeys(f.Namespaces) {
		trial(name+" namespace", f.Namespaces[name], "")
	}
	row("user.max_user_namespaces", number(f.MaxUserNS), "")
	row("cgroups", string(f.Cgroup.Mode), controllers(f.Cgroup))
	for _, m := range f.Idmap {
		trial("idmap "+event.Escape(m.Path), m.Trial, m.Fstype)
	}
	trial("memfd_noexec", f.MemfdNoexec, "")
	trial("mount nosymfollow", f.MountNoSymfollow, "")
	trial("detached mounts", f.OpenTree, "")
	trial("openat2", f.Openat2, "")
	trial("close_range", f.CloseRange, "")
	trial("pidfd", f.Pidfd, "")
	trial("SO_PEERPIDFD", f.PeerPidfd, "")
	trial("AT_EXECVE_CHECK", f.ExecveCheck, "")
	trial("cgroup.kill", f.CgroupKill, "")
	trial("BTF", f.BTF, "for learn and the event agent; enforcing does not need it")
	trial("tracefs", f.Tracefs, "the same")
	row("dev.tty.legacy_tiocsti", number(f.LegacyTIOCSTI), "an agent's terminal is a pty of its own either way")
	if f.CorePattern != nil {
		row("kernel.core_pattern", *f.CorePattern, "read again every few seconds while a session runs")
	}
	row("yama ptrace_scope", number(f.YamaScope), "")
	if len(f.LSMs) > 0 {
		row("LSMs", number(new(len(f.LSMs))), strings.Join(f.LSMs, " "))
	} else {
		row("LSMs", "unknown", "securityfs is not mounted")
	}
	row("lockdown", orUnknown(f.Lockdown), "")
	row("inside a container", word(f.Container.Inside), containerNote(f.Container))
	row("capabilities", fmt.Sprint(len(f.Capabilities)), "")
	_ = t.Flush() // into memory: cannot fail
}

// containerNote says why: it is the namespaces that take reach away. A file that a runtime leaves decides nothing.
func containerNote(c host.Container) string {
	signs := strings.Join(c.Signs, ", ")
	switch {
	case c.Inside:
		return signs
	case signs != "":
		return "its ipc, uts, user, pid and cgroup namespaces are the host's, although " + signs
	}
	return "its ipc, uts, user, pid and cgroup namespaces are the host's"
}

func printLayers(b *bytes.Buffer, d *resolve.Decision) {
	fmt.Fprintf(b, "\nLAYERS\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, l := range d.Layers {
		state, note := "holds", ""
		if !l.Holds {
			state, note = "missing", l.Why+": "+l.Fix
		}
		if l.Name == sidedoor.Landlock && l.Holds {
			note = fmt.Sprintf("used at ABI %d", d.Landlock.ABI)
			if len(d.Landlock.Lacks) > 0 {
				note += "; without " + strings.Join(d.Landlock.Lacks, ", ")
			}
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", l.Name, state, event.Escape(note))
	}
	_ = t.Flush()
}

func printDoors(b *bytes.Buffer, d *resolve.Decision) {
	fmt.Fprintf(b, "\nSIDE DOORS\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, door := range d.Doors {
		fmt.Fprintf(t, "  %s\t%s\t%s\n", doorState(door), door.ID, event.Escape(doorNote(door)))
	}
	_ = t.Flush()
}

func doorState(d resolve.Door) string {
	switch {
	case d.Closed:
		return "closed"
	case d.Allowed != "":
		return "allowed"
	}
	return "OPEN"
}

func doorNote(d resolve.Door) string {
	var parts []string
	switch {
	case d.Closed:
		parts = append(parts, "by "+join(d.By))
		if len(d.Lacks) > 0 {
			parts = append(parts, "not by "+join(names(d.Lacks)))
		}
	case d.Allowed == resolve.AllowedByDesign:
		return d.Title + ": " + d.Rest
	default:
		parts = append(parts, d.Title, d.Reason())
		if fix := d.Fix(); fix != "" {
			parts = append(parts, "to close it: "+fix)
		}
	}
	if d.Rest != "" {
		parts = append(parts, "still: "+d.Rest)
	}
	return strings.Join(parts, "; ")
}

func printVerdict(b *bytes.Buffer, d *diagnosis) {
	b.WriteString("\n")
	for _, n := range d.Notices {
		fmt.Fprintf(b, "notice: %s\n", event.Escape(n))
	}
	if d.Starts {
		fmt.Fprintf(b, "A session would start here.\n")
		return
	}
	fmt.Fprintf(b, "No session would start here:\n")
	for _, text := range d.Refused {
		fmt.Fprintf(b, "  %s\n", event.Escape(text))
	}
	for _, r := range d.Decision.Lacks {
		fmt.Fprintf(b, "  %s: %s\n    -> %s\n", event.Escape(r.Name), event.Escape(r.Why), event.Escape(r.Fix))
	}
	for _, door := range d.Decision.Open() {
		fmt.Fprintf(b, "  door %s: %s\n    -> %s; to start all the same: --allow-open %s\n", door.ID,
			event.Escape(door.Reason()), event.Escape(door.Fix()), door.ID)
	}
}

func abi(l host.Landlock) string {
	if l.ABI == 0 {
		return "no"
	}
	if l.Errata == nil {
		return fmt.Sprintf("ABI %d, errata unknown", l.ABI)
	}
	return fmt.Sprintf("ABI %d, errata %#x", l.ABI, *l.Errata)
}

func controllers(c host.Cgroup) string {
	var out []string
	for _, name := range sortedKeys(c.Controllers) {
		ctl := c.Controllers[name]
		text := fmt.Sprintf("%s v%d", name, ctl.Version)
		if !ctl.Writable {
			text += " read-only"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func names(layers []resolve.Layer) []sidedoor.Layer {
	out := make([]sidedoor.Layer, len(layers))
	for i, l := range layers {
		out[i] = l.Name
	}
	return out
}

func join(layers []sidedoor.Layer) string {
	out := make([]string, len(layers))
	for i, l := range layers {
		out[i] = string(l)
	}
	return strings.Join(out, ", ")
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func number(n *int) string {
	if n == nil {
		return "none"
	}
	return fmt.Sprint(*n)
}

func word(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return event.Escape(s)
}
