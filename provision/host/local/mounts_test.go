package local

import (
	"slices"
	"testing"
)

func TestMountsBelowAPrefixHaveUnescapedPaths(t *testing.T) {
	text := "tmpfs /run tmpfs rw 0 0\n/dev/sdb /var/lib/kubelet ext4 rw 0 0\ntmpfs " +
		"/var/lib/kubelet/pods/a/volumes/x\\040y tmpfs rw 0 0\nbroken\nnsfs /run/netns/cni-1 nsfs rw 0 0\n"
	got := parseMounts(text, []string{"/var/lib/kubelet/", "/run/netns/cni-"})
	if want := []string{"/var/lib/kubelet/pods/a/volumes/x y", "/run/netns/cni-1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
