// Package notify sends notifications about GitSources: requests of JSON with a signature, and the statuses of commits
// at GitHub, GitLab and Gitea.
package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"clusterctl/cmd/gitops/fetch"
	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

const (
	timeout        = 10 * time.Second // of one request
	maxAnswer      = 64 << 10         // bytes of an answer that are read, so that the connection ends well
	maxDescription = 140              // characters of the description of a commit's status; GitHub's limit
	userAgent      = "clusterctl-gitops"
)

// Keys of a notification's Secret.
const (
	keyToken = "token"
	keyURL   = "url"
)

// Sender implements gitops.Sender.
type Sender struct {
	// Hosts are the hosts that sources outside of kube-system may notify, such as hooks.example or *.example. Without
	// any they may notify all.
	Hosts []string
}

// permanentError is an error that a retry does not mend.
type permanentError struct{ error }

// Permanent reports that a retry cannot succeed.
func (permanentError) Permanent() bool { return true }

func (e permanentError) Unwrap() error { return e.error }

func permanent(format string, args ...any) error { return permanentError{fmt.Errorf(format, args...)} }

// message is a request.
type message struct {
	url    *url.URL
	header http.Header
	body   any
}

// Send implements gitops.Sender. It follows no redirects.
func (s Sender) Send(ctx context.Context, to gitops.Target, n gitops.Notification) error {
	m, err := compose(to, n)
	if err != nil {
		return permanentError{err}
	}
	if err := s.check(to.Namespace, m.url); err != nil {
		return err
	}
	body, err := json.Marshal(m.body)
	if err != nil {
		return err
	}
	if to.Type == gitsource.NotifyWebhook {
		mac := hmac.New(sha256.New, token(to))
		_, _ = mac.Write(body) // never fails
		m.header.Set("X-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	transport, err := fetch.NewTransport(to.Namespace, map[string][]byte{"ca.crt": to.Data["ca.crt"]})
	if err != nil {
		return permanentError{err}
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url.String(), bytes.NewReader(body))
	if err != nil {
		return permanent("the URL is not valid")
	}
	m.header.Set("Content-Type", "application/json")
	m.header.Set("User-Agent", userAgent)
	request.Header = m.header
	answer, err := client.Do(request)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) { // its text repeats the URL, which may be secret
			err = failed.Err
		}
		return fmt.Errorf("send to %s: %w", m.url.Host, err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer)) // only the status counts
	return judge(m.url.Host, answer)
}

// judge returns an error if an answer is not a success.
func judge(host string, answer *http.Response) error {
	code := answer.StatusCode
	switch {
	case code >= 200 && code < 300:
		return nil
	case code >= 300 && code < 400:
		return permanent("%s redirects (%d), which is not followed; write the new address", host, code)
	case code == http.StatusTooManyRequests || code >= 500:
		return fmt.Errorf("%s answers %d", host, code)
	}
	return permanent("%s answers %d", host, code)
}

// check returns an error if a source of a namespace may not send to a URL.
func (s Sender) check(namespace string, at *url.URL) error {
	isOwn := namespace == gitsource.Namespace
	if at.Scheme != "https" && !(at.Scheme == "http" && isOwn && isLoopback(at.Hostname())) {
		return permanent("notifications are sent over https only")
	}
	host := strings.ToLower(at.Hostname())
	if isOwn || len(s.Hosts) == 0 || slices.ContainsFunc(s.Hosts, func(pattern string) bool {
		suffix, isWild := strings.CutPrefix(strings.ToLower(pattern), "*")
		return isWild && strings.HasSuffix(host, suffix) || host == strings.ToLower(pattern)
	}) {
		return nil
	}
	return permanent("the host %s is not in notify_hosts of the cluster's gitops block, which lists the hosts that "+
		"sources outside of %s may notify", host, gitsource.Namespace)
}

// isLoopback reports whether a host is an address of the machine itself.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// token returns the token of a target, without spaces around it.
func token(to gitops.Target) []byte { return bytes.TrimSpace(to.Data[keyToken]) }

// compose returns the request of a notification.
func compose(to gitops.Target, n gitops.Notification) (message, error) {
	if len(token(to)) == 0 {
		return message{}, fmt.Errorf("the Secret %s has no key %q", to.Secret, keyToken)
	}
	if to.Type == gitsource.NotifyWebhook {
		text := to.URL
		if text == "" {
			text = strings.TrimSpace(string(to.Data[keyURL]))
		}
		at, err := url.Parse(text)
		if err != nil || at.Host == "" {
			return message{}, fmt.Errorf("neither the notification nor the key %q of the Secret %s has a URL", keyURL,
				to.Secret)
		}
		return message{at, http.Header{}, n}, nil
	}
	host, path, err := repositoryOf(n.URL)
	if err != nil {
		return message{}, err
	}
	return composeStatus(to, n, host, path)
}

// composeStatus returns the request that sets the status of a commit. host and path are those of the repository.
func composeStatus(to gitops.Target, n gitops.Notification, host, path string) (message, error) {
	api := to.URL
	if api == "" {
		api = map[string]string{gitsource.NotifyGitHub: "https://" + host + "/api/v3",
			gitsource.NotifyGitLab: "https://" + host + "/api/v4",
			gitsource.NotifyGitea:  "https://" + host + "/api/v1"}[to.Type]
		if to.Type == gitsource.NotifyGitHub && host == "github.com" {
			api = "https://api.github.com"
		}
	}
	at, err := url.Parse(strings.TrimSuffix(api, "/"))
	if err != nil || at.Host == "" {
		return message{}, errors.New("the URL of the API is not valid")
	}
	secret, header := string(token(to)), http.Header{}
	name, description := userAgent+"/"+n.Source, shorten(n.Reason+": "+n.Message)
	pick := func(ok, failed, pending string) string {
		return map[string]string{"True": ok, "False": failed}[n.Ready] + map[string]string{"Unknown": pending}[n.Ready]
	}
	body := map[string]string{"state": pick("success", "failure", "pending"), "context": name,
		"description": description}
	switch to.Type {
	case gitsource.NotifyGitHub:
		header.Set("Authorization", "Bearer "+secret)
		header.Set("Accept", "application/vnd.github+json")
		at = at.JoinPath("repos", path, "statuses", n.Commit())
	case gitsource.NotifyGitea:
		header.Set("Authorization", "token "+secret)
		at = at.JoinPath("repos", path, "statuses", n.Commit())
	default:
		header.Set("PRIVATE-TOKEN", secret)
		body = map[string]string{"state": pick("success", "failed", "running"), "name": name,
			"description": description}
		raw := at.EscapedPath() + "/projects/" + url.PathEscape(path) + "/statuses/" + n.Commit()
		if at.Path, err = url.PathUnescape(raw); err != nil {
			return message{}, errors.New("the path of the repository is not valid")
		}
		at.RawPath = raw // the slashes of the project stay escaped
	}
	return message{at, header, body}, nil
}

// repositoryOf returns the host of a repository without its port, and its path without the suffix .git.
func repositoryOf(text string) (host, path string, err error) {
	if gitsource.IsSCP(text) {
		host, path, _ = strings.Cut(text, ":")
		if _, after, ok := strings.Cut(host, "@"); ok {
			host = after
		}
	} else {
		u, err := url.Parse(text)
		if err != nil {
			return "", "", errors.New("the URL of the source is not valid")
		}
		host, path = u.Host, u.Path
		if u.Scheme == "ssh" { // its port is not that of the API
			host = u.Hostname()
		}
	}
	path = strings.TrimSuffix(strings.Trim(path, "/"), ".git")
	if host == "" || !strings.Contains(path, "/") || slices.Contains(strings.Split(path, "/"), "..") {
		return "", "", errors.New("the URL of the source names no repository of an owner")
	}
	return host, path, nil
}

// shorten limits a description.
func shorten(text string) string {
	if utf8.RuneCountInString(text) <= maxDescription {
		return text
	}
	return string([]rune(text)[:maxDescription-1]) + "…"
}
