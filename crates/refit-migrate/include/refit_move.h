/* refit_move(2): the calling thread goes on at another instance; it has the number of that, or 0 (refit_instance). -1, and it goes on where it was: ENOENT there is no
 * such instance; EPERM its program cannot be moved; EBUSY not now; EINVAL, ENOSYS it does not run under `refit run --on NUMBER --movable`. */
#include <sys/prctl.h>
static inline int refit_move(int instance) { return prctl(0x72656669, 1L, (long)instance, 0L, 0L); }
static inline int refit_instance(void) { return prctl(0x72656669, 2L, 0L, 0L, 0L); }
