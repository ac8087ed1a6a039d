package certificate

import (
	"testing"
	"testing/synctest"
	"time"
)

// A kubelet without a configured certificate may run for years.
func TestSelfSignedCertificatesAreReplacedBeforeTheyExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, err := NewSelfSigned("node-a", []string{"10.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			pair, err := own.Get(nil)
			if err != nil {
				t.Fatal(err)
			}
			leaf := pair.Leaf
			if now := time.Now(); now.Before(leaf.NotBefore) || !now.AddDate(0, 1, 0).Before(leaf.NotAfter) {
				t.Fatalf("at %s the certificate is valid from %s to %s", now, leaf.NotBefore, leaf.NotAfter)
			}
			time.Sleep(30 * 24 * time.Hour)
		}
	})
}
