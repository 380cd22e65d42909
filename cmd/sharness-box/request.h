// The request memfd: bashserver/wire/command.go is the original of this. Whoever decodes it has given up everything, and
// what it says was written by the other side of the domain.
#ifndef REQUEST_H
#define REQUEST_H

#include <stddef.h>
#include <stdint.h>

enum { MAX_PATH = 4095, MAX_PAYLOAD = 128 << 10, MAX_ARGS = 16384, MAX_ENV = 4096, MAX_COMMAND = (4 << 20) + (1 << 20) };

struct request {
	const char *path, *cwd;
	const char **argv, **env; // each ended by a null pointer
};

static uint32_t word(const unsigned char *b)
{
	return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

// pointers is how many a request needs, 0 when its header is wrong.
static size_t pointers(const unsigned char *b, size_t n)
{
	if (n < 16 || n > MAX_COMMAND || word(b) != 0x31434853 || word(b + 4) != n)
		return 0;
	uint32_t argc = word(b + 8), envc = word(b + 12);
	if (argc < 1 || argc > MAX_ARGS || envc > MAX_ENV)
		return 0;
	return (size_t)argc + envc + 2;
}

// decode says whether b holds a request of that many pointers and nothing else; table has room for them.
static int decode(const unsigned char *b, size_t n, const char **table, struct request *r)
{
	uint32_t argc = word(b + 8), envc = word(b + 12), want = argc + envc + 2, at = 0;
	r->argv = table;
	r->env = table + argc + 1;
	table[argc] = r->env[envc] = 0;
	for (size_t i = 16, start = 16; i < n; i++) {
		if (b[i])
			continue;
		const char *s = (const char *)b + start;
		size_t len = i - start;
		if (len > MAX_PAYLOAD || at == want)
			return 0;
		if (at < 2 && (*s != '/' || len > MAX_PATH))
			return 0;
		if (at == 0)
			r->path = s;
		else if (at == 1)
			r->cwd = s;
		else if (at - 2 < argc)
			r->argv[at - 2] = s;
		else
			r->env[at - 2 - argc] = s;
		at++;
		start = i + 1;
	}
	return at == want && b[n - 1] == 0;
}

#endif
