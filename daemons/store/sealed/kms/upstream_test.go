package kms

import (
	"context"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/storage/value"
	upstream "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"

	"clusterctl/tests/programs/kmsplugin/kmstest"
)

// Values that upstream's API server has written can be read here, and the other way round.
// Proves S10.
func TestStoredFormEqualsUpstream(t *testing.T) {
	r := kmstest.New(t)
	r.Start(t)
	p := newTestPlugin(t, r, &testClock{}, callTimeout)
	mustCheck(t, p)
	ctx := context.Background()
	service, err := upstream.NewGRPCService(t.Context(), r.Endpoint(), "upstream", callTimeout)
	if err != nil {
		t.Fatal(err)
	}
	for name, seeds := range map[string]bool{"keys are derived": true, "one key for all": false} {
		transformer, object, cacheKey, err := upstream.GenerateTransformer(ctx, "uid", service, seeds)
		if err != nil {
			t.Fatal(err)
		}
		state := func() (upstream.State, error) {
			return upstream.State{
				Transformer: transformer, EncryptedObjectKeyID: object.KeyID,
				EncryptedObjectEncryptedDEKSource:     object.EncryptedDEKSource,
				EncryptedObjectAnnotations:            object.Annotations,
				EncryptedObjectEncryptedDEKSourceType: object.EncryptedDEKSourceType,
				ExpirationTimestamp:                   time.Now().Add(time.Hour), CacheKey: cacheKey,
			}, nil
		}
		theirs := upstream.NewEnvelopeTransformer(service, "upstream", state, "server")
		at := value.DefaultContext("/registry/secrets/a/b")
		stored, err := theirs.TransformToStorage(ctx, []byte("of upstream"), at)
		if err != nil {
			t.Fatal(err)
		}
		mustOpen(t, p, "/registry/secrets/a/b", stored, "of upstream")
		if p.Stale(stored) == seeds {
			t.Errorf("%s: stale is %v", name, p.Stale(stored))
		}
		ours := mustSeal(t, p, "/registry/secrets/a/b", "of ours")
		if plain, stale, err := theirs.TransformFromStorage(ctx, ours, at); err != nil || string(plain) != "of ours" ||
			stale == seeds {
			t.Errorf("%s: upstream reads %q, stale: %v, %v", name, plain, stale, err)
		}
	}
}
