module github.com/sharness/sharness

go 1.26.0
