package protect

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// nowhere is of a repository that is no submodule.
func nowhere(string) bool { return false }

func TestSafeConfigKeepsWhatGitWrites(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "",
		"init":  "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n",
		"clone": "[remote \"origin\"]\n\turl = https://example.org/a b?c=%20#x\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n",
		"lfs":   "[lfs]\n\trepositoryformatversion = 0\n[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tprocess = git-lfs filter-process\n",
		"group": "[core]\n\tsharedrepository = group\n[core]\n\tsharedrepository\n[core]\n\tsharedrepository = 1\n[remote \"a/b\"]\n\tprune = true\n",
		"notes": "# a note\n; another\n\n[CORE]\nBARE\n",
	} {
		if safe, found := safeConfig(text, nowhere); found != "" || strings.TrimSpace(safe) != strings.TrimSpace(text) {
			t.Errorf("%s: %q was found, %q is left", name, found, safe)
		}
	}
}

func TestSafeConfigFindsPrograms(t *testing.T) {
	for _, text := range []string{
		"[core]\nfsmonitor = x", "[core]\nhooksPath = x", "[core]\nsshCommand = x", "[core]\npager = x", "[core]\neditor = x", "[core]\ngitProxy = x",
		"[core]\nattributesFile = x", "[core]\naskPass = x", "[core]\nalternateRefsCommand = x", "[alias]\nst = !x", "[filter \"a\"]\nclean = x",
		"[filter \"lfs\"]\nclean = git-lfs clean -- %f; x", "[diff]\nexternal = x", "[diff \"a\"]\ntextconv = x", "[diff \"a\"]\ncommand = x",
		"[merge \"a\"]\ndriver = x", "[mergetool \"a\"]\ncmd = x", "[credential]\nhelper = x", "[credential \"u\"]\nhelper = x", "[include]\npath = x",
		"[includeIf \"a\"]\npath = x", "[gpg]\nprogram = x", "[gpg \"ssh\"]\nprogram = x", "[sequence]\neditor = x", "[uploadpack]\npackObjectsHook = x",
		"[remote \"a\"]\nuploadpack = x", "[remote \"a\"]\nreceivepack = x", "[remote \"a\"]\nvcs = x", "[submodule \"a\"]\nupdate = !x",
		"[gc]\nrecentObjectsHook = x", "[interactive]\ndiffFilter = x", "[pager]\nstatus = x", "[protocol \"ext\"]\nallow = always", "[url \"ext::x\"]\ninsteadOf = y",
		"[trailer \"a\"]\ncommand = x", "[browser \"a\"]\ncmd = x", "[instaweb]\nhttpd = x", "[sendemail]\nsmtpServer = x", "[lfs \"customtransfer.a\"]\npath = x",
		"[core] fsmonitor = x", "[core]\r\nfsmonitor = x", "[core]\rfsmonitor=x", "\ufeff[core]\nfsmonitor = x", "[core]\nbare = a\\\nb", "[core\n]\nfsmonitor=x",
		"[a \"]\n[core]\nfsmonitor = x\n\"]", "[core \"x\\\"]\"]\nbare=1", "[core]\nbare = \x00", "[core.x]\nbare = 1", "[unknown]\nkey = 1",
		"[core]\nworktree = ../../home", "[extensions]\npartialClone = o", "[remote \"o\"]\npromisor = true", "[remote \"o\"]\npartialCloneFilter = tree:0",
		"[remote \"o\"]\nurl = foo::bar", "[remote \"o\"]\npushUrl = \"ext::sh -c x\"", "[submodule \"o\"]\nurl = foo::bar",
		"[remote \"foo::x\"]\nfetch = +a:b", "[remote \"--upload-pack=x;y\"]\nurl = a", "[branch \"a\"]\nremote = --upload-pack=x", "[remote \"foo2://x\"]\nprune = true", "[core]\nrepositoryformatversion = -1", "[core]\nrepositoryformatversion = 0x1", "[core]\nsharedRepository = 0666", "[core]\nsharedRepository = world", "[core]\nsharedRepository = 2",
		"[remote \"o\"]\nurl = foo:\":\"bar", "[branch \"o\"]\nremote = foo::bar", "[branch \"o\"]\npushRemote = foo:\"\":bar",
	} {
		if _, found := safeConfig(text, nowhere); found == "" {
			t.Errorf("%q counts as safe", text)
		}
	}
}

func TestSafeConfigKeepsOnlyAddressesOfGitsOwn(t *testing.T) {
	for _, url := range []string{"https://example.org/x", "http://h/x", "ssh://u@h:22/x", "git://h/x", "file:///x", "ftp://h/x", "ftps://h/x", "git+ssh://h/x",
		"ssh+git://h/x", "u@h:x/y.git", "h:x", "[::1]:x", "../lib", "./lib", "/srv/x.git", "origin", ".", ""} {
		want := url != "[::1]:x" // looks like a helper to us; git takes it for a host
		for _, line := range []string{"[remote \"o\"]\n\turl = ", "[remote \"o\"]\n\tpushurl = ", "[submodule \"o\"]\n\turl = ", "[branch \"o\"]\n\tremote = "} {
			if _, found := safeConfig(line+url, nowhere); (found == "") != want {
				t.Errorf("%q: %q was found", line+url, found)
			}
		}
	}
	for _, url := range []string{"foo2://bar/x", "ext://x", "HTTPS://h/x", "fd://1", "a.b-c+d://x", " foo2://x", "foo2://https://x", "foo\":\"//x", "://x"} {
		for _, line := range []string{"[remote \"o\"]\nurl=", "[remote \"o\"]\npushUrl = ", "[submodule \"o\"]\nURL = ", "[branch \"o\"]\npushRemote = "} {
			if _, found := safeConfig(line+url, nowhere); found == "" {
				t.Errorf("%q counts as safe", line+url)
			}
		}
	}
}

// A key that is kept stands below another header in what is left, if its own is not.
func TestSafeConfigKeepsNoKeyWithoutItsHeader(t *testing.T) {
	for _, header := range []string{"[submodule \"a\x01b\"]", "[submodule \"a\ufeffb\"]", "[submodule \"a\"", "[submodule a]", "[submodule \"a\"] url = x", "[submodule \"a\\\"b\"]"} {
		for _, before := range []string{"[pager]", "[alias]", "[core]", "[include]"} {
			text := before + "\n" + header + "\n\tbranch = touch x; cat\n"
			safe, found := safeConfig(text, nowhere)
			if again, left := safeConfig(safe, nowhere); found == "" || left != "" || strings.TrimRight(again, "\n") != strings.TrimRight(safe, "\n") || strings.Contains(safe, "touch") {
				t.Errorf("%q leaves %q, in which %q is found", text, safe, left)
			}
		}
	}
}

// What is left is safe to us, and git reads no other key in it than we do.
func FuzzSafeConfig(f *testing.F) {
	for _, text := range []string{"[core]\nfsmonitor = x\nbare = \"a\nb\"", "[remote \"a\"] url = x\n\turl = y # z\\\nfsmonitor = 1", "[branch \"\"]\nremote=\"", "[core]\n\tbare = 0\r[a]",
		"[pager]\n[submodule \"a\x01b\"]\n\tbranch = x", "[core]\n\tworktree = ../../sub\n[remote \"o\"]\n\turl = a::b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		safe, _ := safeConfig(text, nowhere)
		if again, found := safeConfig(safe, nowhere); found != "" || strings.TrimRight(again, "\n") != strings.TrimRight(safe, "\n") {
			t.Fatalf("%q leaves %q, in which %q is found", text, safe, found)
		}
		name := t.TempDir() + "/config"
		if err := os.WriteFile(name, []byte(safe), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("/usr/bin/git", "config", "-z", "--name-only", "--list", "-f", name).Output()
		if err != nil {
			return // git does not read it, and so obeys nothing in it
		}
		for key := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			if key == "" {
				continue
			}
			first, last := strings.Index(key, "."), strings.LastIndex(key, ".")
			section := key[:first]
			if last > first {
				section += ".*"
			}
			if !safeLine(section, key[last+1:]+" = ", nowhere) && safeLines[section] == nil {
				t.Errorf("%q leaves %q, in which git reads %q", text, safe, key)
			}
		}
	})
}
