// vfork, for programs that are linked with the library. In its own file, because the preloaded library exports its own
// definition.
#if defined(__x86_64__)
asm(".pushsection .text\n.globl vfork\n.type vfork, @function\nvfork: jmp ringside_vfork\n.size vfork, . - vfork\n.popsection");
#elif defined(__aarch64__)
asm(".pushsection .text\n.globl vfork\n.type vfork, @function\nvfork: b ringside_vfork\n.size vfork, . - vfork\n.popsection");
#endif
