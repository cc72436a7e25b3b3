#include "core/failure.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "core/check.h"

namespace longspan {

Failure CurrentFailure() {
  try {
    throw;
  } catch (const Error& error) {
    return [message = std::string(error.what()), code = error.code()] { throw Error(message, code); };
  } catch (const std::bad_alloc&) {
    return [] { throw std::bad_alloc(); };
  } catch (const std::exception& error) {
    return [message = std::string(error.what())] { throw std::runtime_error(message); };
  } catch (...) {
    return [] { throw std::runtime_error("an error of unknown kind"); };
  }
}

}  // namespace longspan
