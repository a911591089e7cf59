/*
 * Lets an older User-Mode-Linux kernel run on CPUs whose extended state outgrew it.
 *
 * UML writes a guest process's FPU state with PTRACE_SETREGSET(NT_X86_XSTATE) from a buffer whose size was fixed when UML was built (large
 * enough for AVX-512). The host kernel takes only writes of its own full size, which AMX raises to 11 KiB, and answers EFAULT to all
 * others ("userspace - ptrace set fp regs failed, errno = 14"). This shim pads such a write: the header in the part that UML has
 * says which components are in use, and none beyond it ever is, since the guest cannot ask for AMX.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#define XSTATE_NOTE 0x202

static char padded[65536];

long ptrace(enum __ptrace_request request, ...)
{
	static long (*real)(enum __ptrace_request, ...);
	static size_t full_size;
	va_list arguments;
	va_start(arguments, request);
	long pid = va_arg(arguments, long);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);
	if (!real)
		real = dlsym(RTLD_NEXT, "ptrace");
	if (request != PTRACE_SETREGSET || (long)address != XSTATE_NOTE)
		return real(request, pid, address, data);
	const struct iovec *given = data;
	if (!full_size) {
		struct iovec probe = { padded, sizeof(padded) };
		long result = real(PTRACE_GETREGSET, pid, address, &probe);
		if (result < 0)
			return result;
		full_size = probe.iov_len;
		memset(padded, 0, sizeof(padded));
	}
	if (given->iov_len >= full_size)
		return real(request, pid, address, data);
	memcpy(padded, given->iov_base, given->iov_len);
	struct iovec whole = { padded, full_size };
	return real(request, pid, address, &whole);
}
