/* A slow way home for HTCondor's transfers: stageout_pool.py loads this into a node's starter.
 *
 * Every connection that the program opens sends at most RATE bytes per second, in segments of the
 * size that Ethernet has. The kernel paces it, so it holds for whoever uses the connection and
 * needs no queueing discipline; connections do not share the rate.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

int connect(int fd, const struct sockaddr *to, socklen_t size) {
  static int (*real)(int, const struct sockaddr *, socklen_t);
  if (!real)
    real = dlsym(RTLD_NEXT, "connect");
  if (to && to->sa_family == AF_INET) {
    int segment = 1460;
    unsigned int rate = RATE;
    setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
    setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
  }
  return real(fd, to, size);
}
