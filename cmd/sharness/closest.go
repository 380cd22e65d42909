package main

import (
	"cmp"
	"slices"
	"strings"
)

// maxClosest is how many names a person is offered for one that does not exist.
const maxClosest = 3

// closest are the names that are most like word, the nearest first.
func closest(word string, names []string) []string {
	near := slices.Clone(names)
	slices.SortStableFunc(near, func(a, b string) int { return cmp.Compare(distance(word, a), distance(word, b)) })
	return near[:min(len(near), maxClosest)]
}

// distance is Levenshtein's: how many letters have to be put in, taken out or changed. Of a word that lies within the other half of them.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	if a != "" && a != b && strings.Contains(b, a) {
		return row[len(b)] / 2
	}
	return row[len(b)]
}
