package filter

import "slices"

// makers are the calls that sharness-box makes and nothing inside a sandbox may: a command's own filter has the last word
// on them.
var makers = []string{"clone3", "mount", "mount_setattr", "move_mount", "open_tree", "openat2", "sethostname", "setns", "unshare"}

func makersAllowed() []rule {
	var rules []rule
	for _, name := range makers {
		rules = append(rules, allow(name))
	}
	return rules
}

// makersDenied has the answers that the allowlist would have given.
func makersDenied(o Options) []rule {
	var rules []rule
	for _, name := range makers {
		action := denied
		if slices.Contains(absent(o), name) {
			action = notThere
		}
		rules = append(rules, rule{name: name, action: action})
	}
	return rules
}
