package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"clusterctl/daemons/apiserver/remote"
	"clusterctl/daemons/apiserver/settings"
	"clusterctl/daemons/config"
)

// webhook posts events to a server as EventLists. A failed request is retried a few times, after a pause that grows.
type webhook struct {
	file       *settings.File[*receiver]
	retryPause time.Duration
}

// receiver is the server that receives the events.
type receiver struct {
	url    string
	client *http.Client
}

const (
	webhookTimeout  = 30 * time.Second
	webhookAttempts = 5
)

// newWebhook reads a kubeconfig: its cluster is the server, and its user holds the API server's credentials.
func newWebhook(cfg config.APIServer, log *slog.Logger) (*webhook, error) {
	path := cfg.AuditWebhookConfigFile
	file, err := settings.Open(
		"configuration of the audit webhook",
		path,
		func(text []byte, other func(string) ([]byte, error)) (*receiver, error) {
			url, client, err := remote.Client(text, path, webhookTimeout, other)
			return &receiver{url, client}, err
		},
		log,
	)
	return &webhook{file: file, retryPause: max(cfg.AuditWebhookInitialBackoff, time.Millisecond)}, err
}

func (h *webhook) write(ctx context.Context, events []*auditv1.Event) error {
	list := auditv1.EventList{
		TypeMeta: metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "EventList"},
	}
	for _, e := range events {
		list.Items = append(list.Items, *e)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encode audit events: %w", err)
	}
	pause := h.retryPause
	for attempt := 1; ; attempt++ {
		again, err := h.post(ctx, text)
		if err == nil || !again || attempt == webhookAttempts {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(err, ctx.Err())
		}
		pause *= 2
	}
}

// post sends once. again reports whether a retry may help.
func (h *webhook) post(ctx context.Context, text []byte) (again bool, err error) {
	to := h.file.Get() // may have changed since the last attempt
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url, bytes.NewReader(text))
	if err != nil {
		return false, fmt.Errorf("send audit events to %s: %w", to.url, err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := to.client.Do(r)
	if err != nil {
		return true, fmt.Errorf("send audit events: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // lets the connection be reused
	if answer.StatusCode/100 == 2 {
		return false, nil
	}
	return answer.StatusCode == http.StatusTooManyRequests ||
		answer.StatusCode >= 500, fmt.Errorf("send audit events to %s: it answers %s", to.url, answer.Status)
}
