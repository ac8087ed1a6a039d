package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"clusterctl/kube/kubernetes"
)

// userAgent names the dashboard in the API server's audit log.
const userAgent = "clusterctl-dashboard"

// requestTimeout limits a request to the API server that is not a stream.
const requestTimeout = 30 * time.Second

// visitor is a user of the API server, and clients that have this user's credentials.
type visitor struct {
	user   string
	groups []string

	config  *rest.Config
	server  *url.URL
	client  *http.Client // adds the credentials
	typed   *kubernetes.Clientset
	dynamic dynamic.Interface
}

// newVisitor returns the visitor whom the API server authenticates with the credentials of config.
func newVisitor(ctx context.Context, config *rest.Config) (*visitor, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.UserAgent, config.Timeout = -1, userAgent, 0
	config.WarningHandler, config.DisableCompression = rest.NoWarnings{}, true
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	v := &visitor{config: config}
	var err error
	if v.client, err = rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	if v.server, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return nil, fmt.Errorf("find the address of the API server: %w", err)
	}
	if v.typed, err = kubernetes.NewForConfigAndClient(config, v.client); err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	if v.dynamic, err = dynamic.NewForConfigAndClient(config, v.client); err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	review := authenticationv1.SelfSubjectReview{}
	review.APIVersion, review.Kind = authenticationv1.SchemeGroupVersion.String(), "SelfSubjectReview"
	if err := v.post(ctx, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review, &review); err != nil {
		return nil, err
	}
	v.user, v.groups = review.Status.UserInfo.Username, review.Status.UserInfo.Groups
	if v.user == "" || v.user == "system:anonymous" {
		return nil, apierrors.NewUnauthorized("the API server does not accept the credentials")
	}
	return v, nil
}

// getTable implements table.Getter.
func (v *visitor) getTable(ctx context.Context, path, accept string) (*http.Response, error) {
	return v.send(ctx, http.MethodGet, path, accept, nil)
}

// maxAnswer limits the size of an answer that is read as a whole.
const maxAnswer = 32 << 20

// post creates an object that is not stored, such as a review.
func (v *visitor) post(ctx context.Context, path string, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	return v.do(ctx, http.MethodPost, path, text, out)
}

// get reads a document.
func (v *visitor) get(ctx context.Context, path string, out any) error {
	return v.do(ctx, http.MethodGet, path, nil, out)
}

func (v *visitor) do(ctx context.Context, method, path string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := v.send(ctx, method, path, "application/json", body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of the API server: %w", err)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("decode the answer of the API server: %w", err)
	}
	return nil
}

// send sends a request for a path with an optional query. An answer that reports a failure is an error. The caller
// closes the body of the answer.
func (v *visitor) send(ctx context.Context, method, path, accept string, body []byte) (*http.Response, error) {
	path, query, _ := strings.Cut(path, "?")
	target := url.URL{Scheme: v.server.Scheme, Host: v.server.Host, RawQuery: query,
		Path: strings.TrimSuffix(v.server.Path, "/") + path}
	r, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	r.Header.Set("Accept", accept)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := v.client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode < 300 {
		return answer, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10)) // what was read is used
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err != nil || status.Kind != "Status" || status.Code == 0 {
		return nil, newError(answer.StatusCode, metav1.StatusReasonUnknown,
			fmt.Sprintf("the API server answered %s", answer.Status))
	}
	return nil, &apierrors.StatusError{ErrStatus: status}
}
