package dashboard

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// isOwnConnection reports whether a request comes from a process of this machine that has the user of this process. It
// returns false if that cannot be found out.
func isOwnConnection(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(fmt.Stringer)
	if !ok {
		return false
	}
	own, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return false
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if uid, ok := socketOwner(path, peer, own); ok {
			return uid == os.Getuid()
		}
	}
	return false
}

// socketOwner returns the user of the socket from one address to another, by a table of the kernel: in each line the
// words 2 and 3 are the addresses, and word 8 is the user.
func socketOwner(path string, from, to netip.AddrPort) (uid int, ok bool) {
	file, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) > 7 && isSocketAddress(words[1], from) && isSocketAddress(words[2], to) {
			uid, err := strconv.Atoi(words[7])
			return uid, err == nil
		}
	}
	return 0, false
}

// isSocketAddress reports whether a text of the kernel is an address: words of 32 bits in the order of the machine, and
// the port, all in hexadecimal digits.
func isSocketAddress(text string, want netip.AddrPort) bool {
	host, port, _ := strings.Cut(text, ":")
	number, err := strconv.ParseUint(port, 16, 16)
	raw, wrong := hex.DecodeString(host)
	if err != nil || wrong != nil || len(raw)%4 != 0 || uint16(number) != want.Port() {
		return false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	address, ok := netip.AddrFromSlice(raw)
	return ok && address.Unmap() == want.Addr().Unmap()
}
