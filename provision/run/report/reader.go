package report

import (
	"io"
	"os"
	"time"
)

// sendingInterval is the interval between two progress events of a file that is being sent.
const sendingInterval = 5 * time.Second

// Reader reads a file that is sent to a machine. Reads report progress every sendingInterval. It is not safe
// for concurrent use.
type Reader struct {
	io.ReadCloser
	Machine string
	Name    string
	Size    int64            // compressed bytes to send; zero means unknown
	Report  func(Event)      // receives the progress events; nil means none
	Now     func() time.Time // nil means time.Now

	sent int64
	last time.Time // time of the last event, or of the first read
}

// Read reads from the file, and reports progress if sendingInterval has passed.
func (s *Reader) Read(b []byte) (int, error) {
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.last.IsZero() {
		s.last = s.Now()
	}
	n, err := s.ReadCloser.Read(b)
	s.sent += int64(n)
	if now := s.Now(); s.Report != nil && now.Sub(s.last) >= sendingInterval {
		s.last = now
		s.Report(Event{Time: now, Kind: Sending, Machine: s.Machine, Message: s.Name, Bytes: s.sent, Size: s.Size})
	}
	return n, err
}

// CompressedSize returns the size of an open file in bytes, or zero if content is not an *os.File.
func CompressedSize(content io.Reader) int64 {
	file, ok := content.(*os.File)
	if !ok {
		return 0
	}
	info, err := file.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}
