#include "textflag.h"

// func int80(nr, a, b, c, d, e uintptr) uintptr
TEXT ·int80(SB), NOSPLIT, $0-56
	MOVQ nr+0(FP), AX
	MOVQ a+8(FP), BX
	MOVQ b+16(FP), CX
	MOVQ c+24(FP), DX
	MOVQ d+32(FP), SI
	MOVQ e+40(FP), DI
	INT  $0x80
	MOVQ AX, ret+48(FP)
	RET

// func jump(code, nr, a, b, c, d, e uintptr) uintptr
// calls code with the registers of a system call set: what is in anonymous memory does the rest.
TEXT ·jump(SB), NOSPLIT, $8-64
	MOVQ code+0(FP), R12
	MOVQ nr+8(FP), AX
	MOVQ a+16(FP), DI
	MOVQ b+24(FP), SI
	MOVQ c+32(FP), DX
	MOVQ d+40(FP), R10
	MOVQ e+48(FP), R8
	XORQ R9, R9
	CALL R12
	MOVQ AX, ret+56(FP)
	RET
