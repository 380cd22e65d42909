package event

import (
	"slices"
)

// boundedData copies Data: keys in order up to maxData, strings cut, lists cut, maps as deep as maxDepth lets them come.
// Numbers and booleans stay; anything else is for encoding/json to judge.
func boundedData(in map[string]any, cut int) map[string]any {
	if len(in) == 0 {
		return nil
	}
	keys := make([]string, 0, len(in))
	for k := range in {
		keys = append(keys, k)
	}
	slices.Sort(keys) // which keys are kept must not depend on the map's order
	out := make(map[string]any, min(len(keys), maxData))
	for _, k := range keys[:min(len(keys), maxData)] {
		short, _ := clip(k, maxWord)
		out[short] = boundedValue(in[k], cut)
	}
	return out
}

func boundedValue(v any, cut int) any {
	switch v := v.(type) {
	case string:
		s, _ := clip(v, min(cut, maxText))
		return s
	case []string:
		return each(v, maxData, func(s string) string { out, _ := clip(s, min(cut, maxText)); return out })
	case []any:
		out := make([]any, 0, min(len(v), maxData))
		for _, x := range v[:min(len(v), maxData)] {
			out = append(out, boundedValue(x, cut))
		}
		return out
	case map[string]any:
		return boundedData(v, cut)
	default:
		return v
	}
}
