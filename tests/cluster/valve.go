package cluster

import (
	"io"
	"net"
	"sync"
)

// A Valve stands between a client and a server and can cut them off from each other.
type Valve struct {
	URL     string // of plain HTTP
	Address string // the same, host:port

	target   string // host:port
	listener net.Listener
	mutex    sync.Mutex
	shut     bool
	held     chan struct{} // closed when what was held is let go; nil while nothing is held
	open     map[net.Conn]bool
}

// NewValve listens and passes connections on to target, which is host:port.
func NewValve(target string) (*Valve, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v := &Valve{URL: "http://" + listener.Addr().String(), Address: listener.Addr().String(), target: target, listener: listener, open: map[net.Conn]bool{}}
	go v.accept()
	return v, nil
}

// Shut breaks all connections, and every new one until it is opened.
func (v *Valve) Shut() {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.shut = true
	for connection := range v.open {
		connection.Close()
	}
	v.release()
}

// release passes on what is held.
func (v *Valve) release() {
	if v.held != nil {
		close(v.held)
		v.held = nil
	}
}

// Hold lets connections be, also new ones, and passes nothing on, as a server that hangs.
func (v *Valve) Hold() {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if v.held == nil {
		v.held = make(chan struct{})
	}
}

// Open lets connections through again, and passes on what was held.
func (v *Valve) Open() {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.shut = false
	v.release()
}

// Close ends it for good.
func (v *Valve) Close() {
	v.listener.Close()
	v.Shut()
}

func (v *Valve) accept() {
	for {
		client, err := v.listener.Accept()
		if err != nil {
			return
		}
		go v.join(client)
	}
}

func (v *Valve) join(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", v.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !v.enter(client, server) {
		return
	}
	defer v.leave(client, server)
	go func() {
		_, _ = io.Copy(server, passing{v, client})
		server.Close()
	}()
	_, _ = io.Copy(client, passing{v, server})
}

// passing reads from a connection what may be passed on.
type passing struct {
	valve *Valve
	from  net.Conn
}

func (p passing) Read(into []byte) (int, error) {
	read, err := p.from.Read(into)
	p.valve.mutex.Lock()
	held := p.valve.held
	p.valve.mutex.Unlock()
	if held != nil {
		<-held
	}
	return read, err
}

func (v *Valve) enter(connections ...net.Conn) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if v.shut {
		return false
	}
	for _, connection := range connections {
		v.open[connection] = true
	}
	return true
}

func (v *Valve) leave(connections ...net.Conn) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	for _, connection := range connections {
		delete(v.open, connection)
	}
}
