/* refit_move(INSTANCE) moves the calling thread to another instance and returns 0. If it fails, it returns -1, sets errno, and the
 * thread continues where it was: ENOENT there is no such instance; EPERM the program is not movable; EBUSY the thread cannot move now; EINVAL, ENOSYS the
 * program does not run under `refit run --on NUMBER --movable`. refit_instance() returns the number of the current instance. */
#include <sys/prctl.h>
static inline int refit_move(int instance) { return prctl(0x72656669, 1L, (long)instance, 0L, 0L); }
static inline int refit_instance(void) { return prctl(0x72656669, 2L, 0L, 0L, 0L); }
