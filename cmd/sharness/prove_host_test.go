//go:build byhand

package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestProveLeavesTheHostAsItWas runs sharness prove many times and compares what the host looks like: cgroups, mounts,
// users, /run, /tmp and the other shared folders, sysctls, firewall, addresses and routes, audit, System V objects and
// message queues, loaded modules. It is run by hand, on a machine on which nothing else happens:
//
//	go test -tags byhand -count=1 -timeout 30m -run TestProveLeavesTheHostAsItWas -v ./cmd/sharness
//
// PROVE_RUNS is how often (20), PROVE_NOISE a regular expression of names that others change meanwhile.
func TestProveLeavesTheHostAsItWas(t *testing.T) {
	runs := 20
	if s := os.Getenv("PROVE_RUNS"); s != "" {
		var err error
		if runs, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	noise := regexp.MustCompile("^$")
	if s := os.Getenv("PROVE_NOISE"); s != "" {
		noise = regexp.MustCompile(s)
	}
	before := hostState(noise)
	looked := 0
	for _, v := range before {
		looked += len(v)
	}
	for i := range runs {
		if out, err := exec.Command(helper(t, "sharness"), "prove").CombinedOutput(); err != nil {
			t.Fatalf("run %d: %v\n%s", i+1, err, out)
		}
	}
	after := hostState(noise)
	for where := range before {
		for _, d := range stateDiff(before[where], after[where]) {
			t.Errorf("%s: %s", where, d)
		}
	}
	t.Logf("%d runs, %d lines of the host's state compared", runs, looked)
}

// hostState is what is compared, by place, in lines.
func hostState(noise *regexp.Regexp) map[string][]string {
	s := map[string][]string{}
	add := func(where, line string) {
		if !noise.MatchString(line) {
			s[where] = append(s[where], line)
		}
	}
	tree := func(where, dir string, content bool) {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			if noise.MatchString(path) && d.IsDir() {
				return fs.SkipDir
			}
			fi, err := d.Info()
			if err != nil {
				return nil
			}
			st := fi.Sys().(*syscall.Stat_t)
			line := fmt.Sprintf("%s %v %d:%d", path, fi.Mode(), st.Uid, st.Gid)
			if content && fi.Mode().IsRegular() {
				data, _ := os.ReadFile(path)
				line += fmt.Sprintf(" %x", sha256.Sum256(data))
			}
			add(where, line)
			return nil
		})
	}
	file := func(where, path string) {
		data, _ := os.ReadFile(path)
		for line := range strings.Lines(string(data)) {
			add(where, path+": "+strings.TrimSpace(line))
		}
	}
	command := func(where string, argv ...string) {
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			add(where, fmt.Sprintf("%v: %v", argv, err))
		}
		for line := range strings.Lines(string(out)) {
			add(where, strings.Join(argv, " ")+": "+strings.TrimSpace(line))
		}
	}
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			add("cgroups", path)
		}
		return nil
	})
	file("mounts", "/proc/self/mountinfo")
	file("mounts", "/proc/1/mountinfo")
	for _, f := range []string{"passwd", "group", "shadow", "gshadow", "subuid", "subgid"} {
		file("users", "/etc/"+f)
	}
	tree("/run", "/run", false)
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"} {
		tree("shared folders", dir, false)
	}
	for _, dir := range []string{"/var/lib/sharness", "/var/log/sharness", "/etc/sharness"} {
		tree("sharness's own", dir, true)
	}
	names, _ := filepath.Glob("/var/lib/*")
	for _, n := range names {
		add("/var/lib", n)
	}
	sysctls(add)
	command("firewall", "nft", "list", "ruleset")
	command("firewall", "iptables-save")
	command("network", "ip", "address")
	command("network", "ip", "route", "show", "table", "all")
	command("network", "ip", "rule")
	command("audit", "auditctl", "-s")
	file("audit", "/proc/1/loginuid")
	for _, f := range []string{"shm", "sem", "msg"} {
		file("System V objects", "/proc/sysvipc/"+f)
	}
	modules, _ := os.ReadFile("/proc/modules")
	for line := range strings.Lines(string(modules)) {
		add("modules", strings.Fields(line)[0])
	}
	return s
}

// moving are sysctls that tell a state and set nothing.
var moving = regexp.MustCompile(`/proc/sys/(kernel/(random|ns_last_pid|pty/nr|keys/)|fs/(dentry-state|inode-|file-nr|aio-nr|quota)|net/netfilter/nf_conntrack_count|vm/stat_refresh|kernel/sched_domain)`)

func sysctls(add func(where, line string)) {
	filepath.WalkDir("/proc/sys", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || moving.MatchString(path) {
			return nil
		}
		if fi, err := d.Info(); err != nil || fi.Mode()&0o444 == 0 {
			return nil
		}
		data, err := os.ReadFile(path)
		if err == nil {
			add("sysctls", path+" = "+strings.Join(strings.Fields(string(data)), " "))
		}
		return nil
	})
}

func stateDiff(before, after []string) (out []string) {
	slices.Sort(before)
	slices.Sort(after)
	for _, l := range after {
		if _, found := slices.BinarySearch(before, l); !found {
			out = append(out, "+ "+l)
		}
	}
	for _, l := range before {
		if _, found := slices.BinarySearch(after, l); !found {
			out = append(out, "- "+l)
		}
	}
	return out
}
