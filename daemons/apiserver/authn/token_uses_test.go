package authn

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/accountkey"
)

// Uses of tokens in Secrets are counted, and the Secrets get a label with the last day.
// Proves S12.
func TestSecretTokenUsesAreRecorded(t *testing.T) {
	w := newTestServer(t)
	w.now = time.Date(2026, 3, 4, 23, 0, 0, 0, time.UTC)
	signer, _, err := accountkey.Signer(w.cfg.ServiceAccountSigningKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	claims := accountkey.LegacyClaims{Namespace: "shop", Secret: "s", AccountName: "web", AccountUID: "sa-1"}
	token, err := jwt.Signed(signer).
		Claims(jwt.Claims{Issuer: accountkey.LegacyIssuer, Subject: "system:serviceaccount:shop:web"}).
		Claims(claims).
		Serialize()
	if err != nil {
		t.Fatal(err)
	}
	counts := prometheus.NewRegistry()
	if err := w.authn.Tokens().RegisterMetrics(counts); err != nil {
		t.Fatal(err)
	}
	use := func(labels map[string]string) {
		w.objects.Put(
			&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s", Labels: labels},
				Data:       map[string][]byte{"token": []byte(token)},
			},
		)
		_, _, err := w.authn.Verify(t.Context(), token, nil)
		if (err == nil) != (labels[invalidSinceLabel] == "") {
			t.Errorf("%v: %v", labels, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	noted, done := make(chan string), make(chan error, 1)
	go func() {
		done <- w.authn.Tokens().RecordUses(ctx, func(_ context.Context, namespace, name, key, day string) error {
			noted <- namespace + "/" + name + " " + key + "=" + day
			return errors.New("it is only a test")
		}, slog.New(slog.DiscardHandler))
	}()
	must := func(day string) {
		t.Helper()
		if got, want := <-noted, "shop/s kubernetes.io/legacy-token-last-used="+day; got != want {
			t.Errorf("noted %q, want %q", got, want)
		}
	}
	use(nil)
	must("2026-03-04")
	use(nil) // the cache does not have the label yet
	use(map[string]string{lastUsedLabel: "2026-03-04"})
	use(map[string]string{lastUsedLabel: "2026-03-05"}) // by a server whose clock is ahead
	w.now = w.now.Add(2 * time.Hour)
	use(map[string]string{lastUsedLabel: "2026-03-04", invalidSinceLabel: "2026-03-03"})
	must("2026-03-05")
	w.objects.Put(
		&corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "sa-1"},
			Secrets:    []corev1.ObjectReference{{Name: "s"}},
		},
	)
	use(map[string]string{lastUsedLabel: "2026-03-05"})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(w.authn.Tokens().uses.queue) > 0 {
		t.Error("more is to be noted")
	}
	checkTokenUseCounts(t, counts)
}

// checkTokenUseCounts checks the metrics of the uses in TestSecretTokenUsesAreRecorded.
func checkTokenUseCounts(t *testing.T, counts prometheus.Gatherer) {
	var want strings.Builder
	for _, c := range []struct{ name, help, n string }{
		{"invalid_legacy_auto_token_uses_total", "Uses of those that are marked invalid.", "1"},
		{"legacy_auto_token_uses_total", "Uses of those whose Secret the service account lists.", "1"},
		{"legacy_manual_token_uses_total", "Uses of those whose Secret it does not list.", "4"},
		{"legacy_tokens_total", "Uses of service accounts' tokens that lie in Secrets.", "5"},
	} {
		want.WriteString("# HELP serviceaccount_" + c.name + " " + c.help + "\n# TYPE serviceaccount_" + c.name +
			" counter\nserviceaccount_" + c.name + " " + c.n + "\n")
	}
	if err := testutil.GatherAndCompare(counts, strings.NewReader(want.String())); err != nil {
		t.Error(err)
	}
}
