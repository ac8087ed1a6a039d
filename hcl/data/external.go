package data

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Limits of programs. maxOutput is in bytes.
const (
	DefaultTimeout = 30 * time.Second
	MaxTimeout     = 10 * time.Minute
	maxOutput      = 1 << 20
)

// RunExternal runs a program. The program reads the query as JSON from its standard input, and prints a JSON object of
// strings.
func RunExternal(
	ctx context.Context,
	program []string,
	dir string,
	query map[string]string,
	timeout time.Duration,
) (map[string]string, error) {
	if len(program) == 0 || program[0] == "" {
		return nil, errors.New("program is a list that begins with a program")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if query == nil {
		query = map[string]string{}
	}
	in, err := json.Marshal(query)
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, program[0], program[1:]...)
	c.Dir, c.Stdin, c.WaitDelay = dir, bytes.NewReader(in), time.Second
	out, problems := &limitedBuffer{limit: maxOutput}, &limitedBuffer{limit: 4 << 10}
	c.Stdout, c.Stderr = out, problems
	err = c.Run()
	complaint := strings.TrimSpace(problems.text.String())
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return nil, fmt.Errorf("%s did not end within %s", program[0], timeout)
	case err != nil && complaint != "":
		return nil, fmt.Errorf("%s: %w: %s", program[0], err, complaint)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", program[0], err)
	case out.isOver:
		return nil, fmt.Errorf("%s printed more than %d MiB", program[0], maxOutput>>20)
	}
	var result map[string]string
	if err := json.Unmarshal(WithoutBOM(out.text.Bytes()), &result); err != nil || result == nil {
		return nil, fmt.Errorf(
			"%s did not print a JSON object whose values are texts, as {\"address\": \"192.0.2.1\"}: %v", program[0],
			err)
	}
	return result, nil
}

// limitedBuffer keeps the beginning of what is written to it. The buffer is not embedded, because its ReadFrom would
// bypass the limit.
type limitedBuffer struct {
	text   bytes.Buffer
	limit  int
	isOver bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	left := b.limit - b.text.Len()
	if len(p) > left {
		b.isOver = true
	}
	b.text.Write(p[:min(max(left, 0), len(p))])
	return len(p), nil
}
