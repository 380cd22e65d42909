// Decodes requests as sharness-box does, for a test that compares. Each comes as a length and bytes; a byte that says
// whether it is one goes back, and then the numbers of arguments and variables and all strings in order.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../../../cmd/sharness-box/request.h"

static void put(const char *s) { fwrite(s, 1, strlen(s) + 1, stdout); }

static uint32_t count_of(const char **list)
{
	uint32_t n = 0;
	while (list[n])
		n++;
	return n;
}

int main(void)
{
	uint32_t n;
	while (fread(&n, sizeof n, 1, stdin) == 1) {
		// Exactly as long as it is, so that a byte read beyond is found.
		unsigned char *b = malloc(n ? n : 1);
		if (n && fread(b, 1, n, stdin) != n)
			return 1;
		size_t count = pointers(b, n);
		const char **table = malloc((count ? count : 1) * sizeof *table);
		struct request r = {0};
		int ok = count && decode(b, n, table, &r);
		putchar(ok);
		if (ok) {
			uint32_t counts[] = {count_of(r.argv), count_of(r.env)};
			fwrite(counts, sizeof counts, 1, stdout);
			put(r.path);
			put(r.cwd);
			for (uint32_t i = 0; i < counts[0]; i++)
				put(r.argv[i]);
			for (uint32_t i = 0; i < counts[1]; i++)
				put(r.env[i]);
		}
		fflush(stdout);
		free(table);
		free(b);
	}
	return 0;
}
