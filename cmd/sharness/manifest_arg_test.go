package main

import "testing"

func TestManifestIsNamedAsItIsTyped(t *testing.T) {
	for file, want := range map[string]string{
		"/etc/sharness/bot.yaml": "bot", "/etc/sharness/bot.yml": "/etc/sharness/bot.yml", "/etc/sharness/deep/bot.yaml": "/etc/sharness/deep/bot.yaml",
		"/srv/bot.yaml": "/srv/bot.yaml", "bot.yaml": "bot.yaml", "/etc/sharness/a.yaml.yaml": "/etc/sharness/a.yaml.yaml", "/srv/a b.yaml": "'/srv/a b.yaml'",
	} {
		if got := manifestArg(file); got != want || file != "bot.yaml" && got[0] != '\'' && manifestFile(got) != file {
			t.Errorf("%s: got %s, want %s", file, got, want)
		}
	}
}
