package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/daemons/config"
)

// webhook posts events to a server as EventLists. What it does not take is sent again
// after a pause that grows, a few times.
type webhook struct {
	url    string
	client *http.Client
	pause  time.Duration
}

const (
	webhookTimeout  = 30 * time.Second
	webhookAttempts = 5
)

// newWebhook reads a kubeconfig, whose cluster is the server and whose user the API server
// is to it.
func newWebhook(cfg config.APIServer) (*webhook, error) {
	c, err := clientcmd.BuildConfigFromFlags("", cfg.AuditWebhookConfigFile)
	if err != nil {
		return nil, fmt.Errorf("read the audit webhook's configuration %s: %w", cfg.AuditWebhookConfigFile, err)
	}
	c.Timeout = webhookTimeout
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("set up the audit webhook of %s: %w", cfg.AuditWebhookConfigFile, err)
	}
	return &webhook{url: c.Host, client: client, pause: max(cfg.AuditWebhookInitialBackoff, time.Millisecond)}, nil
}

func (h *webhook) write(ctx context.Context, events []*auditv1.Event) error {
	list := auditv1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "EventList"}}
	for _, e := range events {
		list.Items = append(list.Items, *e)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encode audit events: %w", err)
	}
	pause := h.pause
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

// post sends once; again says whether another attempt may help.
func (h *webhook) post(ctx context.Context, text []byte) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(text))
	if err != nil {
		return false, fmt.Errorf("send audit events to %s: %w", h.url, err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := h.client.Do(r)
	if err != nil {
		return true, fmt.Errorf("send audit events: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be used again
	if answer.StatusCode/100 == 2 {
		return false, nil
	}
	return answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= 500, fmt.Errorf("send audit events to %s: it answers %s", h.url, answer.Status)
}
