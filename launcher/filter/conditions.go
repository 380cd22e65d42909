package filter

import seccomp "github.com/seccomp/libseccomp-golang"

// low32 selects what the kernel reads of an argument declared int or unsigned int. A denial that compared all 64 bits
// would be passed by a caller that sets a high one.
const low32 = 0xffffffff

// equal compares all 64 bits: right for an allowance, wrong for a denial.
func equal(arg uint, value uint64) seccomp.ScmpCondition {
	return seccomp.ScmpCondition{Argument: arg, Op: seccomp.CompareEqual, Operand1: value}
}

// masked holds when the argument's bits under mask are value.
func masked(arg uint, mask, value uint64) seccomp.ScmpCondition {
	return seccomp.ScmpCondition{Argument: arg, Op: seccomp.CompareMaskedEqual, Operand1: mask, Operand2: value}
}

// int32Is holds when the argument, read as the kernel reads an int, is value.
func int32Is(arg uint, value uint64) seccomp.ScmpCondition {
	return masked(arg, low32, value)
}

// has holds when every bit of bits is set.
func has(arg uint, bits uint64) seccomp.ScmpCondition {
	return masked(arg, bits, bits)
}

// notNull holds when a pointer is passed.
func notNull(arg uint) seccomp.ScmpCondition {
	return seccomp.ScmpCondition{Argument: arg, Op: seccomp.CompareNotEqual, Operand1: 0}
}

func allow(name string, conds ...seccomp.ScmpCondition) rule {
	return rule{name: name, action: seccomp.ActAllow, conds: conds}
}

func deny(name string, conds ...seccomp.ScmpCondition) rule {
	return rule{name: name, action: denied, conds: conds}
}
